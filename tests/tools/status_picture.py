"""Writes docs/launch_status.png, the status page of the made-up experiment: `make status-picture`."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path

from multiberts.launch.status.page import write_status_page
from multiberts.launch.status.snapshot import collect_status
from multiberts.tests.launch.made_up import make_sweep
from multiberts.tests.tools.browser import Browser

PICTURE = Path(__file__).parents[2] / "docs" / "launch_status.png"

if __name__ == "__main__":
    # The page shows the root as it is given: no folder of this machine.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        root = Path("multiberts")
        make_sweep(root, time.time())
        write_status_page(collect_status(root), root / "status.html")
        browser = Browser(Path(folder) / "profile")
        try:
            page = Path(folder) / root / "status.html"
            browser.open(page, width=1200)
            # Down to the end of the first log.
            height = browser.run("document.querySelector('pre').getBoundingClientRect().bottom")
            browser.open(page, width=1200, height=int(height) + 8)
            browser.run("document.documentElement.style.overflow = 'hidden'; 0")  # no scroll bar
            browser.picture(PICTURE)
        finally:
            browser.close()
