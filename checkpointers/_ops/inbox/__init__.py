"""The inbox of interrupts.

The authoritative record of an interrupt is a note of its thread, written in the same guarded write as the interrupt
itself. Docs outside the thread are an index: added before that write, verified against the note when read, dropped
when they are found to be stale. So a crash at any point leaves every interrupt findable and nothing false in a list.
"""
