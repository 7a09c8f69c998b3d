"""The command in the header of every configuration of a launch, as a plan: nothing of it is refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.tests.launch.paper_inputs import write_checkpoints, write_data
from multiberts.tests.tools import warm

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = {
    path.name: path
    for path in (*(ROOT / "configs").glob("*.gin"), *(ROOT / "configs" / "launch").glob("*.gin"))
}
# It wants checkpoints of a made-up world, and tests/launch/test_paper.py carries it out.
del CONFIGS["paper_smoke.gin"]


def command_of(path: Path) -> list[str]:
    """The words of the `multiberts launch` or `launch run` in a header."""
    header = re.match(r"(#.*\n)+", path.read_text())
    assert header is not None
    text = header[0].replace("\n#", "\n").replace("\\\n", " ")
    [line] = re.findall(r"multiberts launch (?:run )?(--gin_file=.*)", text)
    return shlex.split(line)


def make_inputs(folder: Path, command: list[str]) -> None:
    """Empty files and folders in place of all that the command and its configurations name."""
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "wiki").mkdir()
    (folder / "wiki" / "a.txt.gz").touch()
    vocabulary = folder / "uncased_L-12_H-768_A-12" / "vocab.txt"
    vocabulary.parent.mkdir()
    pieces = [*SPECIAL_TOKENS, *(f"word{number}" for number in range(30522 - len(SPECIAL_TOKENS)))]
    vocabulary.write_text("".join(f"{piece}\n" for piece in pieces))
    names = [word.partition("=")[2] for word in command if word.startswith("--gin_file=")]
    text = "".join((ROOT / name).read_text() for name in names)
    for data in ("data", "folder"):
        write_data(folder / data)
        for name in re.findall(r"'data:([^']+\.gz)'", text):
            place = folder / data / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_headers_command_can_be_planned(name: str, tmp_path: Path) -> None:
    command = command_of(CONFIGS[name])
    make_inputs(tmp_path, command)
    if name == "paper.gin":
        # Few seeds: tests/launch/test_paper.py has the paper's.
        seeds = [("multiberts", seed, step) for seed in range(5) for step in (1000000, 2000000)]
        others = [(name, seed, 2000000) for name in ("cda_incr", "cda_full") for seed in range(2)]
        write_checkpoints(tmp_path, [*seeds, *others, ("uncased_L-12_H-768_A-12", None, None)])
    (tmp_path / "ten_seeds.csv.gz").touch()
    run = warm.run(["launch", "plan", *command], tmp_path)
    assert run.returncode == 0, run.stderr
    assert re.search(r"\b\d[\d,]* device-hours", run.stdout) or "nothing is left" in run.stdout
    assert "no checkpoint has it" not in run.stdout
    if name == "tpu.gin":
        [(hours, dollars)] = re.findall(r"([\d,.]+) device-hours, ([\d,.]+) dollars", run.stdout)
        a_seed = [float(number.replace(",", "")) / 25 for number in (hours, dollars)]
        [days] = re.findall(r"at least ([\d.]+) d from now", run.stdout)
        said = f"# Cost: {a_seed[0]:.0f} hours and ${a_seed[1]:.0f} a seed on spot v5litepod-4, "
        said += (
            f"${25 * a_seed[1]:,.0f} in all and at least {float(days):.0f} days with three machines"
        )
        assert said in CONFIGS[name].read_text()
