"""The terminal view: every width, plain text where there is no terminal, a live view that Ctrl-C ends."""

from __future__ import annotations

import cProfile
import os
import pty
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from multiberts.launch.estimate import quantities
from multiberts.launch.plan.planned_run import PlannedRun
from multiberts.launch.status.page import render_status_page
from multiberts.launch.status.plan_report import show_plan
from multiberts.launch.status.snapshot import Status, collect_status
from multiberts.launch.status.table import rows_of
from multiberts.launch.status.terminal import print_status, terminal_view
from multiberts.runs.errors import UserError
from multiberts.tests.launch.made_up import MadeUp, make_sweep
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("status") / "multiberts"
    make_sweep(root, time.time())
    return root


@pytest.fixture(scope="module")
def status(root: Path) -> Status:
    return collect_status(root)


def shown(status: Status, width: int, seeds: int | None = None) -> str:
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(terminal_view(status, width, seeds))
    return capture.get()


def table_of(text: str) -> list[str]:
    return text.split("\n\n")[1].splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_width_shows_what_counts(status: Status, width: int) -> None:
    text = shown(status, width)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for fact in (
        "813 of 2,528 runs done (32 %), 19 running, 1 retrying, 1 lost, 3 failed",
        "base 9 1.98M of 2M running, 8.00",
        "803 of 2,500 10",
        "is not finite",
        "pretrain/base/seed_20",
    ):
        assert fact in words, fact
    assert "logs/seed_19.log)" in "".join(words.split())
    # Nothing is cut off where it would be read as another number.
    assert "…" not in text


def test_a_table_has_stages_and_below_pretraining_the_seeds_that_have_begun(status: Status) -> None:
    lines = table_of(shown(status, 120))
    first = [line.split()[0] for line in lines]
    stages = ["finetune", "evaluate", "stats"]
    assert first == ["stage", "prepare", "pretrain", *["base"] * 12, *stages]
    (nine,) = [line for line in lines if line.startswith("  base 9 ")]
    facts = "1.98M of 2M", "8.00 steps/s, 42 min left, attempt 2, skypilot · tpu-v4-8", "2.9 d"
    for fact in facts:
        assert fact in nine, fact
    # What stands still has neither speed nor an end.
    (lost,) = [line for line in lines if line.startswith("  base 18 ")]
    assert "lost, skypilot" in lost and "left" not in lost
    # Each stage has its time; a stage without attempts has none.
    assert lines[2].split()[-2:] == ["50.1", "d"]
    assert lines[1].split()[-1] == "–"
    # Few rows show trouble first, and the stage counts all.
    lines = table_of(shown(status, 100, seeds=3))
    seeds = [line.split()[1] for line in lines if line.startswith("  base ")]
    assert seeds == ["9", "18", "19"] and "9 running" in lines[2]


def test_names_and_times_are_whole_beside_a_long_host(tmp_path: Path) -> None:
    made = MadeUp(tmp_path / "experiment", time.time())
    host = "ip-10-0-31-7.compute.internal." * 6
    for seed in range(3):
        made.attempt(made.add_seed(seed), 1, engine="slurm", device="gpu 0", host=host, job="1")
    made.write_plan()
    for width in (110, 120, 200):
        lines = table_of(shown(collect_status(made.root), width))
        for seed in range(3):
            (line,) = [line for line in lines if line.startswith(f"  base {seed} ")]
            assert "running, slurm" in line and line.split()[-2:] == ["60", "min"]


def test_the_work_grows_with_the_runs_and_attempts_and_no_faster(tmp_path: Path) -> None:
    """Also of runs that no plan names any more, as after a learning rate was changed."""

    def calls(function: Callable[[], Any]) -> int:
        profile = cProfile.Profile()
        profile.runcall(function)
        return sum(entry.callcount for entry in profile.getstats())

    def calls_of_status(seeds: int) -> tuple[int, int]:
        made = MadeUp(tmp_path / str(seeds), time.time())
        for rate in (1e-5, 2e-5):
            made.plan.clear()
            for number in range(seeds):
                seed = made.add_seed(number)
                trial = made.add_trial(seed, "CoLA", rate, 0)
                for run in (seed, trial):
                    made.attempt(run, 1, silent=900, engine="slurm", host="node07")
        made.write_plan()
        status = collect_status(made.root)
        return calls(lambda: collect_status(made.root)), calls(lambda: rows_of(status))

    for few, many in zip(calls_of_status(100), calls_of_status(200), strict=True):
        assert many < 2.2 * few


def test_a_launch_that_stopped_tells_how_to_resume(tmp_path: Path) -> None:
    made = MadeUp(tmp_path / "experiment", time.time())
    seed = made.add_seed(0)
    report = made.add("report", "report", "report", (seed,))
    made.write_plan()
    text = shown(collect_status(made.root), 200)
    assert "no launcher is running, the command that was given resumes from here" in text
    for run in (seed, report):
        made.finish(run)
    text = shown(collect_status(made.root), 200)
    assert "no launcher is running;" in text and "launch run" not in text
    assert f"report: {made.root}/{report.path}/index.html" in text


def test_no_terminal_no_control_characters(root: Path) -> None:
    done = warm.run(["launch", "status", f"--root={root}"])
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "813 of 2,528" in done.stdout


# Ends markup that was not opened, a tag, an emoji; clears the screen, rings, turns the line round, hides
# half a character, and begins a new line.
HOSTILE = "[/x] [red] :smile: \x1b[2J\x07\u202e\u2067\u2028\udc80\nerror: forged"


def hostile_experiment(root: Path) -> None:
    made = MadeUp(root, time.time())
    seed = made.add("pretrain", "pretrain/a", HOSTILE, procedure=HOSTILE, pretrain_seed=1,
                    num_steps=4, checkpoint_steps=[4])  # fmt: skip
    trial = made.add("finetune", "finetune/task/a/run", HOSTILE, (seed,), task=HOSTILE)
    made.write_plan()
    marker = root / "launch" / "plan.json"
    marker.write_text(marker.read_text().replace('"stage": "finetune"', '"stage": "[/x]\\u001b"'))
    log = root / "logs" / "a.log"
    log.parent.mkdir()
    log.write_text(f"{HOSTILE}\nlast\n", errors="surrogateescape")
    error = {"kind": HOSTILE, "message": HOSTILE}
    made.attempt(seed, 1, outcome="failed", error=error, log="logs/a.log", engine="local")
    made.attempt(trial, 1, engine=HOSTILE, device=HOSTILE, host=HOSTILE, job=HOSTILE)
    stray = root / "stray\x1b[2J\u202e[/x]"
    stray.mkdir(parents=True)
    (stray / "config.gin").touch()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_names_neither_steer_the_terminal_nor_end_the_view(tmp_path: Path, width: int) -> None:
    root = tmp_path / "[bold]experiment[/bold]"
    hostile_experiment(root)
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        print_status(collect_status(root), console)
    text = capture.get()
    assert all(character == "\n" or character.isprintable() for character in text)
    assert not any(line.startswith("error: forged") for line in text.splitlines())
    joined = "".join(text.split())
    assert "[bold]experiment[/bold]:0of2" in joined
    for fact in ("[/x][red]:smile:", r"\x1b[2J\x07\u202e\u2067\u2028\udc80\nerror:", "[/x]"):
        assert fact in joined, fact
    page = render_status_page(collect_status(root))
    page.encode()
    assert all(character in "\n\t" or character.isprintable() for character in page)


def test_the_plan_shows_no_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "\x1b[2J\u202e"
    plan = [PlannedRun("score", "scores", {"predictions": []}, (), "a" * 64, "scores")]
    show_plan(plan=plan, root=root)
    out = capsys.readouterr().out
    assert r"\x1b[2J\u202e: 1 run" in out
    assert all(character == "\n" or character.isprintable() for character in out)
    for path in ("scores\x1b[31m", "scores\nerror: forged", "scores\u202e"):
        with pytest.raises(UserError, match="printable characters"):
            PlannedRun("score", "scores", {}, (), "a" * 64, path)


def test_the_live_view_is_drawn_until_ctrl_c(root: Path) -> None:
    ours, theirs = pty.openpty()
    process = warm.Process(
        warm.COMMAND,
        [["launch", "status", f"--root={root}", "--watch"]],
        environment={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "50"},
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = b""
    end = time.monotonic() + PATIENCE
    while b"finetune" not in drawn and time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            drawn += os.read(ours, 1 << 16)
    assert b"pretrain" in drawn and b"\x1b[" in drawn
    process.send_signal(signal.SIGINT)
    while select.select([ours], [], [], PATIENCE)[0]:  # until it closes its end
        try:
            drawn += os.read(ours, 1 << 16)
        except OSError:
            break
    assert process.wait(PATIENCE) == 0
    assert b"Traceback" not in drawn
    os.close(ours)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "–"), (0, "0 s"), (119.4, "119 s"), (119.9, "2 min"), (3600, "60 min"),
        (7199.9, "2.0 h"), (172799, "48.0 h"), (172800, "2.0 d"),
    ],
)  # fmt: skip
def test_durations(seconds: float | None, words: str) -> None:
    assert quantities.duration(seconds) == words


def test_shares_are_whole_only_when_all_is_done() -> None:
    assert [quantities.percent(share) for share in (0, 1e-6, 0.5, 0.9999, 1)] == [
        "0 %", "1 %", "50 %", "99 %", "100 %"
    ]  # fmt: skip
    assert [quantities.compact(value) for value in (None, 600, 20_000, 1_250_000, 2_000_000)] == [
        "–", "600", "20k", "1.25M", "2M"
    ]  # fmt: skip
