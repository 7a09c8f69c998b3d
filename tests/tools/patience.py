"""How long tests wait: long enough for any machine, so that only what hangs is ended.

Less than `faulthandler_timeout` of pyproject.toml, which ends a test that waits without a limit.
"""

PATIENCE = 600.0  # seconds
