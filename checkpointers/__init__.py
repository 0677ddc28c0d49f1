"""Stepvault."""
