"""Ours against the official savers, memory and the raw limit, in one run. See `python -m benchmarks --help`."""
