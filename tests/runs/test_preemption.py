from __future__ import annotations

import os
import signal
import threading

from multiberts.runs.preemption import preemption_notice


def test_a_notice_inside_is_known_outside_too() -> None:
    """As of a run within a sweep: the run may finish, and then the sweep must stop."""
    before = signal.getsignal(signal.SIGTERM)
    with preemption_notice() as outer:
        with preemption_notice() as inner:
            assert not inner() and not outer()
            os.kill(os.getpid(), signal.SIGTERM)
            assert inner()
        assert outer()
        # A run that starts after the notice must stop at once.
        with preemption_notice() as later:
            assert later()
    with preemption_notice() as fresh:
        assert not fresh()
    assert signal.getsignal(signal.SIGTERM) == before


def test_threads_have_no_notice() -> None:
    seen: list[bool] = []

    def wait() -> None:
        with preemption_notice() as should_stop:
            seen.append(should_stop())

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert seen == [False]
