"""Typed serialization: values to msgpack bytes and back, under a type policy. No clock, no environment."""
