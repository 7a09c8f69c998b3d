"""run.json: what is needed of it, early checkpoints, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multiberts.evaluate.prediction_files.run_file import (
    evaluation_entry,
    final_sets,
    find_entry,
    find_runs,
    read_run,
    run_directories,
    set_at,
    write_run,
)
from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file

ENTRY = {"file": "predictions/dev.tfrecord", "examples": 2, "sha256": "0" * 64, "metrics": ["f1"]}
CONTENT = {
    "task": "RTE", "procedure": None, "pretrain_seed": None, "data_seed": 1, "step": 0,
    "learning_rate": 2e-5, "finetune_seed": 3, "vocabulary_sha256": "1" * 64, "anything": [1],
    "evaluation_sets": {"dev": ENTRY, "dev@2.5": {**ENTRY, "set": "dev", "epochs": 2.5}},
}  # fmt: skip


def test_what_is_written_is_read_back(tmp_path: Path):
    write_run(tmp_path, CONTENT)
    assert read_run(tmp_path) == CONTENT


def test_early_checkpoints_are_told_from_the_last(tmp_path: Path):
    assert [set_at("dev", epochs) for epochs in (2.5, 3, 10 / 3)] == [
        "dev@2.5",
        "dev@3",
        "dev@3.333",
    ]
    assert list(final_sets(CONTENT)) == ["dev"]
    assert find_entry("", CONTENT, "dev") == ("dev", ENTRY)
    assert find_entry("", CONTENT, "dev@2.5")[0] == "dev@2.5"
    assert find_entry("", CONTENT, "dev", 2.5)[0] == "dev@2.5"
    thirds = {"evaluation_sets": {"dev@3.333": {**ENTRY, "set": "dev", "epochs": 10 / 3}}}
    assert find_entry("", thirds, "dev", 3.3333)[0] == "dev@3.333"
    with pytest.raises(UserError, match=r"'dev' at 3 epochs, .*dev, dev@2\.5"):
        find_entry("", CONTENT, "dev", 3)
    with pytest.raises(UserError, match=r"'dev', .*dev@3\.333"):
        find_entry("", thirds, "dev")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": None}, "has task None, expected str"),
        ({"step": 1.5}, "has step 1.5, expected int or None"),
        ({"finetune_seed": True}, "has finetune_seed True"),
        (
            {"pretrain_seed": 2**63},
            f"expected int at least 0 and at most {2**63 - 1} (seed % 2**63",
        ),
        ({"seeds": {"mask_seed": -1}}, "has seeds {'mask_seed': -1}, expected"),
        ({"vocabulary_sha256": 3}, "has vocabulary_sha256 3"),
        ({"evaluation_sets": []}, "has evaluation_sets [], expected mapping of str to any"),
        ({"evaluation_sets": {"dev": {}}}, "'dev' lacks examples, file, metrics, sha256"),
        ({"evaluation_sets": {"dev": {**ENTRY, "file": "../x"}}}, "inside the run's directory"),
        ({"evaluation_sets": {"dev": {**ENTRY, "file": "/x"}}}, "inside the run's directory"),
        ({"evaluation_sets": {"dev": {**ENTRY, "sha256": "abc"}}}, "64 hexadecimal digits"),
        ({"evaluation_sets": {"dev": {**ENTRY, "metrics": [1]}}}, "expected list of str"),
        ({"inputs": {"dev_files": [{"name": "dev.tsv"}]}}, "has inputs {'dev_files': [{'name'"),
        ({"learning_rate": float("nan")}, "has learning_rate nan, expected float or None"),
        ({"evaluation_sets": {"dev@2": ENTRY}}, "lacks set and epochs"),
        ({"evaluation_sets": {"../dev": ENTRY}}, "set '../dev' has an unfit name"),
        ({"evaluation_sets": {"\x1b[2J": ENTRY}}, "has an unfit name"),
        (
            {"evaluation_sets": {"/@2": {**ENTRY, "set": "/", "epochs": 2}}},
            "set '/@2' has an unfit name, expected 1 to 200 bytes of printable characters",
        ),
        (
            {"evaluation_sets": {"dev@2": {**ENTRY, "set": "dev", "epochs": 3}}},
            "has set 'dev' and epochs 3, expected those of its name",
        ),
    ],
)
def test_other_content_is_refused(tmp_path: Path, change: dict, message: str):
    with pytest.raises(ValueError) as caught:
        write_run(tmp_path, {**CONTENT, **change})
    assert message in str(caught.value)
    (tmp_path / "run.json").write_text(json.dumps({**CONTENT, **change}))
    with pytest.raises(UserError) as refused:
        read_run(tmp_path)
    assert str(tmp_path / "run.json") in str(refused.value) and message in str(refused.value)


def test_a_set_of_an_earlier_import_may_lie_in_a_folder(tmp_path: Path):
    write_run(tmp_path, {**CONTENT, "evaluation_sets": {"bbh/snarks": ENTRY}})
    assert [*read_run(tmp_path)["evaluation_sets"]] == ["bbh/snarks"]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (json.dumps(CONTENT).encode()[:-9], "not whole JSON"),
        (b"", "is empty"),
        (b"\x00\xff\xfe", "not whole JSON"),
        (b"null", "holds None, expected fields"),
        (b"[]", "holds [], expected fields"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"step": ' + b"[" * 100_000, "nested too deep"),
        (b'{"step": ' + b"9" * 10_000 + b"}", "an integer has 10000 digits"),
    ],
)
def test_what_is_not_whole_gets_one_line(tmp_path: Path, data: bytes, found: str):
    (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(UserError) as refused:
        read_run(tmp_path)
    message = str(refused.value)
    assert message.startswith(str(tmp_path / "run.json")) and found in message
    assert message.endswith("run the fine-tuning again") and "\n" not in message


def test_an_entry_holds_the_checksum_of_its_file(tmp_path: Path):
    (tmp_path / "x").write_bytes(b"abc")
    entry = evaluation_entry(
        tmp_path, "x", examples=1, metrics=("f1",), evaluation_set="dev", epochs=0.5
    )
    assert entry == {
        "file": "x", "examples": 1, "metrics": ["f1"], "set": "dev", "epochs": 0.5,
        # FIPS 180-2, appendix B.1
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    }  # fmt: skip


def test_runs_that_were_begun_are_found(tmp_path: Path):
    for name, stage in (("a", "finetune"), ("b", "pretrain"), ("c", "finetune")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.gin").write_text(f"# Frozen by the stage `{stage}`.\n")
    (tmp_path / "binary").mkdir()
    (tmp_path / "binary" / "config.gin").write_bytes(b"\xff\xfe\n")
    (tmp_path / "c" / "DONE").write_text('{"outputs": {}}')
    (tmp_path / "c" / "run.json").write_text("{}")
    assert run_directories(tmp_path, finished=False) == [tmp_path / "a"]
    assert run_directories(tmp_path) == [tmp_path / "c"]


@pytest.mark.parametrize("marker", ["", "null", '{"outputs": {"x"', '{"outputs": 3}'])
def test_a_run_whose_marker_is_damaged_is_refused(tmp_path: Path, marker: str):
    (tmp_path / "run.json").write_text(json.dumps(CONTENT))
    (tmp_path / "DONE").write_text('{"outputs": {}}')
    assert len(find_runs(tmp_path)) == 1
    (tmp_path / "DONE").write_text(marker)
    with pytest.raises(UserError, match="DONE.*; remove it"):
        find_runs(tmp_path)


def test_a_run_json_that_changed_after_its_run_is_refused(tmp_path: Path):
    """Such as an edited task, whose scores would count for the other."""
    write_run(tmp_path, CONTENT)
    recorded = {"bytes": 1, "sha256": sha256_of_file(tmp_path / "run.json")}
    (tmp_path / "DONE").write_text(json.dumps({"outputs": {"run.json": recorded}}))
    assert len(find_runs(tmp_path)) == 1
    write_run(tmp_path, {**CONTENT, "task": "another"})
    with pytest.raises(UserError, match=r"run\.json .*checksum .*DONE"):
        find_runs(tmp_path)
