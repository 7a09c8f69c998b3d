"""How long tests wait: long enough for any machine, so that only what hangs is ended."""

PATIENCE = 1800.0  # seconds
