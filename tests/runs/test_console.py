"""What commands print cannot steer the terminal; progress is lines where no terminal draws a bar."""

from __future__ import annotations

import time

import pytest

from multiberts.runs import console
from multiberts.runs.console import ProgressBar

STEERING = [
    *("\x1b", "\x07", "\x08", "\r", "\x00", "\x7f", "\x85", "\x9b"),
    *map(chr, [0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]),
    *("\u2028", "\u2029", "\ud800", "\ufeff"),
]


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


def test_short_work_prints_no_line_nor_does_what_is_disabled(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert list(ProgressBar(range(3), desc="scoring")) == [0, 1, 2]
    monkeypatch.setattr(ProgressBar, "INTERVAL", 0.0)
    assert list(ProgressBar(range(3), disable=True)) == [0, 1, 2]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("character", STEERING, ids=ascii)
def test_a_character_that_steers_the_terminal_is_shown_as_an_escape(
    character: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ascii(character).strip("'")
    for write in (console.report, console.progress, console.warn, console.error):
        write(f"run{character}[2J done")
        output = "".join(capsys.readouterr())
        assert character not in output
        assert output.endswith(f"run{shown}[2J done\n")


def test_text_in_any_script_is_printed_as_it_is() -> None:
    text = "Füße 東京 עברית\t🎲\nnext line"
    assert console.printable(text) == text
