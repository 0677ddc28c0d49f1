"""Where wrapped data keys are kept: in the database of the payloads, or in another one."""
