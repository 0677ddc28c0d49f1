"""Every store operation, once."""
