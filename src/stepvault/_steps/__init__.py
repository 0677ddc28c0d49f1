"""Typed steps from the inside: models, what they look like as JSON, and how they are made from checkpoints."""
