"""Forgetting one person: plan, erase, prove.

An erasure is a request that moves through states, each kept before the next begins, so any worker can take up where
another was killed, and two workers do no harm: every step can be repeated.
"""
