"""Progress is lines where no terminal draws a bar, and short work prints none."""

import time

import pytest

from multiberts.runs.console import ProgressBar


def test_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ProgressBar, "INTERVAL", 0.02)
    with ProgressBar(total=3, desc="pre-training", unit="step") as bar:
        for _ in range(3):
            time.sleep(0.03)
            bar.update()
            bar.set_postfix_str("loss 7.1", refresh=False)
    lines = capfd.readouterr().err.split("\n")
    assert [line.partition("|")[0] for line in lines] == [
        "pre-training:  33%", "pre-training:  67%", "pre-training: 100%", "",
    ]  # fmt: skip
    assert "loss 7.1" in lines[1]


def test_short_work_prints_no_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(ProgressBar(range(3), desc="scoring")) == [0, 1, 2]
    assert capfd.readouterr().err == ""


def test_nothing_where_it_is_disabled(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ProgressBar, "INTERVAL", 0.0)
    assert list(ProgressBar(range(3), disable=True)) == [0, 1, 2]
    assert capfd.readouterr().err == ""
