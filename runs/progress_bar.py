"""Progress of long work. Apart from `console`, as tqdm takes 40 ms to import."""

import math
import sys
from typing import Any

from tqdm import tqdm

from multiberts.runs import console


class ProgressBar(tqdm):
    """A progress bar on a terminal; elsewhere a line every half minute, and none for short work."""

    INTERVAL = 30.0  # seconds

    def __init__(self, *arguments: Any, disable: bool = False, **options: Any):
        self._is_drawn = sys.stderr.isatty()
        if not self._is_drawn:
            # Check the clock at every update, so that no thread is needed.
            options |= dict.fromkeys(("delay", "mininterval", "maxinterval"), self.INTERVAL)
            options |= {"miniters": 1, "ascii": True}
        super().__init__(*arguments, disable=disable or console.is_quiet(), **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draws the bar, or prints it as a line."""
        if self._is_drawn:
            super().display(msg, pos)
        else:
            console.progress(msg or str(self))

    def close(self) -> None:
        """Finishes a drawn bar; printed lines need no end."""
        if not self._is_drawn:
            self.delay = math.inf
        super().close()
