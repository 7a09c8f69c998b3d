"""Signals of a terminal, for processes of tests that were started under nohup or in the background."""

import signal


def obey_a_terminal() -> None:
    """Takes Ctrl-C and hang-ups as a terminal's processes do: those who start tests may have ignored them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
