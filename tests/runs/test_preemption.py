from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from functools import partial
from pathlib import Path

import pytest

from multiberts.runs.preemption import EXIT_PREEMPTED, _ask_metadata, preemption_notice
from multiberts.tests.tools.http_server import serving
from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.terminal_signals import obey_a_terminal

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("notice", [signal.SIGTERM, signal.SIGHUP])
def test_a_notice_inside_is_known_outside_too(
    notice: signal.Signals, request: pytest.FixtureRequest
) -> None:
    """As of a run within a sweep: the run may finish, and then the sweep must stop."""
    # Not as nohup leaves it.
    request.addfinalizer(partial(signal.signal, notice, signal.signal(notice, signal.SIG_DFL)))
    with preemption_notice() as outer:
        with preemption_notice() as inner:
            assert not inner() and not outer()
            os.kill(os.getpid(), notice)
            assert inner()
        assert outer()
        # A run that starts after the notice must stop at once.
        with preemption_notice() as later:
            assert later()
    with preemption_notice() as fresh:
        assert not fresh()
    assert signal.getsignal(notice) == signal.SIG_DFL


def test_an_ignored_hang_up_stays_ignored() -> None:
    """As `nohup` asks for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with preemption_notice() as should_stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not should_stop()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


TRAIN = """
import sys, time
from pathlib import Path
from multiberts.runs import console
from multiberts.runs.command_line.command import run_main
from multiberts.runs.preemption import PreemptedError, preemption_notice
from multiberts.runs.console import ProgressBar

def main(arguments):
    with preemption_notice() as should_stop, ProgressBar(total=10**6, desc="training") as bar:
        console.report("begun")
        while not should_stop():
            time.sleep(0.05)
            bar.update()
        for write in (console.report, console.progress, console.warn):
            write("the terminal is gone")
        Path(sys.argv[1]).touch()
        raise PreemptedError("asked to stop: saved")

run_main(main)
"""


def test_a_closed_terminal_lets_a_run_save_and_exit_as_asked_to_stop(tmp_path: Path) -> None:
    """Writing to a terminal that has hung up is an error (EIO)."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(tmp_path / "saved")], cwd=ROOT,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: (obey_a_terminal(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while b"begun" not in shown:
        shown += os.read(ours, 1024)
    os.close(ours)  # the kernel hangs up the session
    assert process.wait(timeout=PATIENCE) == EXIT_PREEMPTED
    assert (tmp_path / "saved").exists()


def test_threads_have_no_notice() -> None:
    seen: list[bool] = []

    def wait() -> None:
        with preemption_notice() as should_stop:
            seen.append(should_stop())

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert seen == [False]


def test_only_googles_machines_ask_and_only_while_the_block_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asking() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if "_ask_metadata" in thread.name]

    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    with preemption_notice():
        assert asking() == []
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")  # where nobody answers
    with preemption_notice() as outer, preemption_notice():
        [thread] = asking()
    thread.join(PATIENCE)
    assert not outer() and asking() == []


@pytest.mark.parametrize("status", [200, 404, 500])
def test_only_an_answer_without_an_error_is_a_notice(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with serving(lambda *_: (status, {}, b"TRUE")) as address, preemption_notice() as should_stop:
        monkeypatch.setenv("GCE_METADATA_HOST", address.removeprefix("http://"))
        _ask_metadata(Once())
        assert should_stop() == (status == 200)


@pytest.mark.parametrize("host", ["127.0.0.1:abc", "a..b", " ", "127.0.0.1:99999"])
def test_a_metadata_server_whose_address_is_none_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", host)
    _ask_metadata(Once())  # raises nothing


class Once(threading.Event):
    """Ends what waits for it after one round."""

    rounds = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.rounds += 1
        return self.rounds > 1
