"""`multiberts checkpoint audit` finds planted faults of each kind, and none in a clean grid."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from multiberts.bert.checkpoint.audit import audit_checkpoints
from multiberts.bert.checkpoint.checkpoint import write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError
from multiberts.tests.fake_hub import FakeHub, hub_command

CONFIG = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
)
STEPS = (0, 1000, 2000)
SEEDS = range(4)


def _trained(seed: int, step: int) -> dict[str, np.ndarray]:
    """Returns the initialisation of a seed after a random walk, which stays correlated with it."""
    parameters = initial_parameters(CONFIG, seed)
    for number in range(step // 1000):
        draw = np.random.default_rng((seed, number))
        parameters = {
            name: (values + draw.normal(0, 0.01, values.shape)).astype(np.float32)
            for name, values in parameters.items()
        }
    return parameters


def _write(
    folder: Path, vocabulary: Path, seed: int, step: int, as_seed: int, as_step: int
) -> Path:
    directory = folder / f"seed_{as_seed}" / f"step_{as_step}"
    provenance = {"procedure": "base", "pretrain_seed": as_seed, "data_seed": 0, "step": as_step}
    write_checkpoint(
        directory, _trained(seed, step), CONFIG, Vocabulary.open(vocabulary), provenance
    )
    return directory


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(95))]
    path.write_text("\n".join(words) + "\n")
    return path


@pytest.fixture
def grid(tmp_path: Path, vocabulary: Path) -> Path:
    """Four independent seeds at three steps."""
    for seed in SEEDS:
        for step in STEPS:
            _write(tmp_path / "grid", vocabulary, seed, step, seed, step)
    return tmp_path / "grid"


def _replace(grid: Path, vocabulary: Path, name: str, seed: int, step: int) -> None:
    """Puts another training's weights in the place of a checkpoint."""
    as_seed, as_step = map(int, re.findall(r"\d+", name))
    shutil.rmtree(grid / name)
    _write(grid, vocabulary, seed, step, as_seed, as_step)


def _poison(directory: Path) -> None:
    """Writes NaN over the middle of the weights."""
    path = directory / "bert.ckpt.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : -len(content) // 4] = b"\xff" * (
        len(content) - 2 * (len(content) // 4)
    )
    path.write_bytes(bytes(content))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


FAULTS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "no weights": (
        lambda grid, _: [path.unlink() for path in grid.glob("seed_1/step_1000/bert.ckpt*")],
        "seed_1 step 1,000 has no weights",
    ),
    "a step missing": (
        lambda grid, _: shutil.rmtree(grid / "seed_2/step_1000"),
        "seed_2 has no step 1,000, which most runs have",
    ),
    "cut": (
        lambda grid, _: _cut(grid / "seed_1/step_2000/bert.ckpt.data-00000-of-00001"),
        "seed_1 step 2,000 cannot be read",
    ),
    "not a number": (lambda grid, _: _poison(grid / "seed_0/step_1000"), "NaN or infinite"),
    "a step equals another": (
        lambda grid, vocabulary: _replace(grid, vocabulary, "seed_1/step_2000", 1, 1000),
        "seed_1 step 1,000 and seed_1 step 2,000 are equal in every byte that was read",
    ),
    "seeds share an initialisation": (
        lambda grid, vocabulary: [
            _replace(grid, vocabulary, f"seed_3/step_{step}", 1, step + 3000) for step in STEPS
        ],
        "seed_1 and seed_3 share an initialisation, or one continues the other",
    ),
    "a step of another seed": (
        lambda grid, vocabulary: _replace(grid, vocabulary, "seed_1/step_2000", 3, 3000),
        r"seed_1 step 2,000 does not continue seed_1 step 1,000: .* but with those of seed_3 step 2,000",
    ),
    "another start": (
        lambda grid, vocabulary: _replace(grid, vocabulary, "seed_2/step_0", 9, 0),
        "seed_2 step 1,000 does not continue seed_2 step 0: their weights do not correlate.",
    ),
    "a long way": (
        lambda grid, vocabulary: _replace(grid, vocabulary, "seed_2/step_2000", 2, 8000),
        "seed_2 moved unusually far from step 1,000 to step 2,000",
    ),
    "another vocabulary": (
        lambda grid, _: (grid / "seed_1/step_0/vocab.txt").write_text("[PAD]\n"),
        "seed_1 step 0 has another vocab.txt than 11 others",
    ),
    "another configuration": (
        lambda grid, _: (grid / "seed_1/step_0/bert_config.json").write_text("{}"),
        "seed_1 step 0 has another bert_config.json than 11 others",
    ),
    "optimiser state": (
        lambda grid, _: (grid / "seed_1/step_0/optimizer.pt").write_bytes(b"moments"),
        "seed_1 step 0 has an optimiser state, unlike the others",
    ),
}  # fmt: skip


def test_clean_grid_has_no_fault(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit_checkpoints(paths=[str(grid)]) == 0
    assert "12 checkpoints of 4 runs: no fault was found" in capsys.readouterr().out


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found(
    name: str, grid: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant, expected = FAULTS[name]
    plant(grid, vocabulary)
    assert audit_checkpoints(paths=[str(grid)]) == 1
    assert re.search(expected, capsys.readouterr().out)


def test_fault_is_alone(grid: Path, vocabulary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _replace(grid, vocabulary, "seed_1/step_2000", 3, 3000)
    audit_checkpoints(paths=[str(grid)])
    assert capsys.readouterr().out.count("\n- ") == 1


def test_paths_that_are_steps_or_procedures_are_told_apart(
    grid: Path,
    tmp_path: Path,
    vocabulary: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in SEEDS:
        for step in STEPS:
            _write(tmp_path / "other", vocabulary, seed + 10, step, seed, step)
    assert audit_checkpoints(paths=[str(grid), str(tmp_path / "other")]) == 0
    assert "24 checkpoints of 8 runs: no fault was found" in capsys.readouterr().out
    monkeypatch.chdir(grid / "seed_0")
    for paths in (sorted(map(str, grid.glob("seed_0/step_*"))), [f"step_{step}" for step in STEPS]):
        assert audit_checkpoints(paths=paths) == 0
        assert "3 checkpoints of 1 run: no fault was found" in capsys.readouterr().out


def test_procedures_of_one_recorded_seed_share_their_initialisation(
    grid: Path, tmp_path: Path, vocabulary: Path
) -> None:
    for step in STEPS:
        _write(tmp_path / "grid" / "longer", vocabulary, 2, step + 3000, 2, step)
    assert audit_checkpoints(paths=[str(grid)]) == 0


def test_page_has_verdict_and_picture(grid: Path, tmp_path: Path) -> None:
    _cut(grid / "seed_1/step_2000/bert.ckpt.data-00000-of-00001")
    page = tmp_path / "audit.html"
    audit_checkpoints(paths=[str(grid)], html=str(page))
    content = page.read_text()
    assert "12 checkpoints of 4 runs: 1 fault" in content
    assert "data:image/png;base64" in content


def test_refused(tmp_path: Path, grid: Path, vocabulary: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no checkpoint"):
        audit_checkpoints(paths=[str(tmp_path / "empty")])
    with pytest.raises(UserError, match="is not a folder"):
        audit_checkpoints(paths=[str(tmp_path / "none")])
    other = tmp_path / "other"
    other.mkdir()
    save_file({"weight": np.zeros((4, 4), np.float32)}, other / "model.safetensors")
    with pytest.raises(UserError, match="no matrix of the same name and shape"):
        audit_checkpoints(paths=[str(grid), str(other)])


def test_safetensors_of_any_architecture_on_the_hub(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    branches = {}
    weights = {
        f"layers.{n}.mlp.weight": draw.normal(size=(200, 300)).astype(np.float32) for n in range(20)
    }
    for number, step in enumerate((0, 1000, 2000)):
        folder = tmp_path / f"step{step}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}))
        moved = {name: values + np.float32(0.1 * number) * draw.normal(size=values.shape).astype(np.float32)
                 for name, values in weights.items()}  # fmt: skip
        save_file(moved, folder / "model.safetensors")
        branches[f"step{step}"] = folder
    first = load_file(branches["step0"] / "model.safetensors")
    save_file(first, branches["step2000"] / "model.safetensors")
    hub = FakeHub(
        tmp_path / "uploads",
        {"models/org/small": branches, "models/org/small-step_2k": {"main": branches["step1000"]}},
    )
    with hub.serve() as endpoint:
        home = tmp_path / "home"
        result = hub_command(endpoint, home, "checkpoint", "audit", "hub:org/small")
        missing = hub_command(endpoint, home, "checkpoint", "audit", "hub:org/none")
        here = str(branches["step0"])
        mixed = hub_command(endpoint, home, "checkpoint", "audit", here, "hub:org/small@step1000")
        named = hub_command(
            endpoint, home, "checkpoint", "audit", "hub:org/small@step0", "hub:org/small-step_2k"
        )
    assert result.returncode == 1, result.stderr
    assert "org/small step 0 and org/small step 2,000 are equal in every byte" in result.stdout
    # 3 files of 4.8 MB, of which 12 parts of 16 KB are read, and the header.
    share = float(re.search(r"\(([\d.]+)%\)", result.stdout)[1])
    assert share < 6
    assert missing.returncode == 2
    # The same bytes here and there, whatever kind of hash a server states.
    assert "another config.json" not in mixed.stdout and "2 checkpoints of 2 runs" in mixed.stdout
    # A repository for each step, as the MultiBERTs have.
    assert "2 checkpoints of 1 run: no fault was found" in named.stdout, named.stdout
    assert "hub:org/none: the Hub has no such repository, or it is private" in missing.stderr
