"""Whole documents set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from multiberts.pretrain.corpus.documents import Piece, read_documents
from multiberts.pretrain.corpus.held_out_documents import HELD_OUT, TRAINED, hold_out
from multiberts.runs.errors import UserError


@pytest.fixture
def text(tmp_path: Path) -> Path:
    documents = [f"Document {n} starts .\nIt has a second line .\n" for n in range(400)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(documents))
    return path


def _documents(path: Path) -> list[list[str]]:
    return list(read_documents([Piece(str(path), "sentences")]))


def _hold_out(text: Path, run_dir: Path, **changes: object) -> list[list[list[str]]]:
    arguments = {"share": 0.1, "hold_out_seed": 0, **changes}
    hold_out(run_dir=str(run_dir), sources=[str(text)], source_format="sentences", **arguments)
    return [_documents(run_dir / name) for name in (TRAINED, HELD_OUT)]


def test_every_document_is_on_one_side(text: Path, tmp_path: Path) -> None:
    trained, held_out = _hold_out(text, tmp_path / "run")
    everything = _documents(text)
    assert sorted(trained + held_out) == sorted(everything)
    # In their order, and about the share: 40 expected, standard deviation 6.
    assert trained == [document for document in everything if document in trained]
    assert 22 <= len(held_out) <= 58


def test_the_choice_is_the_seed_s(text: Path, tmp_path: Path) -> None:
    one, again, other = (
        _hold_out(text, tmp_path / name, hold_out_seed=seed)
        for name, seed in [("one", 0), ("again", 0), ("other", 1)]
    )
    assert one == again
    assert one != other


def test_no_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"hold_out.sources is \[\], expected a list"):
        hold_out(run_dir=str(tmp_path / "run"), sources=[], source_format="sentences")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"share": 0.0}, "hold_out.share 0.0 of 400 documents holds out 0"),
        ({"share": 1e-9}, "of 400 documents holds out 0, expected at least two"),
    ],
)
def test_refusals(text: Path, tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        _hold_out(text, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()
