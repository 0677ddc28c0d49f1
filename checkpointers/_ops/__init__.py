"""Every checkpointer operation, once, as a generator over a backend's primitives."""
