"""Waits for ever; run as a module by the test of guarded processes."""

import time

if __name__ == "__main__":
    time.sleep(600)
