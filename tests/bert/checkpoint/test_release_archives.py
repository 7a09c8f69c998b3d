"""Published archives by name, from a server on this machine that has them as the release does."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from multiberts.bert.checkpoint import release_archives
from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint
from multiberts.bert.checkpoint.hub import checkpoint_directory
from multiberts.bert.checkpoint.release_archives import release_directory
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.runs.errors import UserError
from multiberts.tests.http_server import Answer, crawling, serving


def files_below(folder: Path) -> Callable[..., Answer]:
    def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        file = folder / path.strip("/")
        return (200, {}, file.read_bytes()) if file.is_file() else (404, {}, b"")

    return answer


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an archive of seed 3, served; the cache is empty."""
    vocabulary = tmp_path / "given_vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n")
    config = BertConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    written = tmp_path / "written"
    write_checkpoint(written, initial_parameters(config, 3), config, vocabulary, {})
    folder = tmp_path / "public"
    (folder / "models").mkdir(parents=True)
    with zipfile.ZipFile(folder / "models" / "seed_3.zip", "w") as archive:
        for name in ("bert.ckpt.index", "bert.ckpt.data-00000-of-00001"):
            archive.write(written / name, f"seed_3/{name}")
    for name in ("bert_config.json", "vocab.txt"):
        (folder / name).write_bytes((written / name).read_bytes())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    release_directory.cache_clear()
    with serving(files_below(folder)) as address:
        monkeypatch.setenv("MULTIBERTS_RELEASE", address)
        yield folder
    release_directory.cache_clear()


def test_an_archive_is_fetched_once(release: Path) -> None:
    directory = checkpoint_directory("tf-release:seed_3")
    read = read_checkpoint(directory)
    expected = initial_parameters(read.config, 3)
    assert all((read.parameters[name] == values).all() for name, values in expected.items())
    known = [read.provenance[name] for name in ("procedure", "pretrain_seed", "step")]
    assert known == ["multiberts", 3, 2_000_000]
    assert sorted(path.name for path in directory.iterdir()) == [
        "bert.ckpt.data-00000-of-00001", "bert.ckpt.index", "bert_config.json", "vocab.txt",
    ]  # fmt: skip
    (release / "models" / "seed_3.zip").unlink()
    release_directory.cache_clear()
    assert checkpoint_directory("tf-release:seed_3") == directory


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("seed_25", lambda folder: None, "is not in the release, expected tf-release:seed_0 to"),
        ("step_20k", lambda folder: None, "is not in the release"),
        ("seed_4", lambda folder: None, r"seed_4.zip cannot be fetched \(Not Found\)"),
        (
            "seed_3",
            lambda folder: (folder / "models/seed_3.zip").write_bytes(b"PK no archive"),
            "archive.zip is not a whole .zip file",
        ),
        ("seed_3", lambda folder: (folder / "vocab.txt").unlink(), "vocab.txt cannot be fetched"),
    ],
)
def test_what_cannot_be_fetched_gets_one_line_and_leaves_nothing(
    tmp_path: Path, release: Path, name: str, change: Callable[[Path], object], line: str
) -> None:
    change(release)
    with pytest.raises(UserError, match=line):
        checkpoint_directory(f"tf-release:{name}")
    assert not any((tmp_path / "cache").rglob("*seed*"))


def test_without_a_server_the_line_says_so(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTIBERTS_RELEASE", "http://127.0.0.1:9")
    with pytest.raises(UserError, match="try again where there is a network"):
        checkpoint_directory("tf-release:seed_3")


def test_a_server_that_sends_two_bytes_per_second_is_left(
    release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes before the time without an answer is over, and the file would take years."""
    monkeypatch.setattr(release_archives, "_SECONDS_WITHOUT_AN_ANSWER", 0.2)
    monkeypatch.setattr(release_archives, "_SLOWEST", 100_000)

    with crawling() as address:
        monkeypatch.setenv("MULTIBERTS_RELEASE", address)
        with pytest.raises(UserError, match=r"cannot be fetched \(\d+ bytes in 0 s\); try again"):
            checkpoint_directory("tf-release:seed_3")
