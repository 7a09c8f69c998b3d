"""The environment of the tests: what a login gives, so that nobody's own settings decide a test."""

from __future__ import annotations

import fnmatch
import os
import sys

# Where programs, folders, and certificates are; where pip finds packages; what the tests themselves read.
KEPT = (
    *(
        "HOME",
        "LANG",
        "LC_*",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TMPDIR",
        "TZ",
        "USER",
    ),
    *("*_proxy", "*_PROXY", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_*"),
    *("PIP_*", "UV_*"),
    *("DATA", "MULTIBERTS_WARM", "PYTEST_*", "PYTHONPATH", "SKYPILOT_PYTHON"),
)


def keep_a_login() -> None:
    """Removes from this process's environment, and from those it starts, what is not in `KEPT`."""
    for name in list(os.environ):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in KEPT):
            del os.environ[name]
    # PYTHONDONTWRITEBYTECODE made each of a thousand processes compile the sources again: twice the time.
    sys.dont_write_bytecode = False
