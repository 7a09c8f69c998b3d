"""Inputs of configs/launch/paper.gin that have the right names and nothing in them, for plans."""

from __future__ import annotations

import json
from pathlib import Path

from multiberts.finetune.coreference.winogender_schemas import FILES as WINOGENDER_FILES
from multiberts.launch.imports.register import FILE, checkpoint_run, entry_of, write_entries


def write_data(folder: Path) -> Path:
    """Files with the names of the real data; a plan looks at what they hold, not what it means."""
    tasks = ("CoLA", "MNLI", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B")
    names = [f"glue/{task}/{split}.tsv" for task in tasks for split in ("train", "dev")]
    names += ["glue/MNLI/dev_matched.tsv", "glue/MNLI/dev_mismatched.tsv"]
    names += [f"squad/{split}-v{n}.json" for split in ("train", "dev") for n in ("1.1", "2.0")]
    names += [f"winogender/{name}" for name in WINOGENDER_FILES]
    names += ["hans/heuristics_evaluation_set.txt"]
    names += [
        f"conll-2012/v4/data/{part}/data/english/a.v4_gold_conll"
        for part in ("train", "development")
    ]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def pretend_to_have(root: Path, checkpoints: list[tuple[str, int, int | None]]) -> None:
    """Lists checkpoints as imported, without their weights."""
    entries = []
    for procedure, seed, step in checkpoints:
        run = checkpoint_run(procedure, seed, step, f"{procedure} {seed} {step}", "somewhere")
        (root / run.path).mkdir(parents=True)
        (root / run.path / "DONE").write_text(json.dumps({"outputs": {}}))
        entries.append(entry_of(run))
    write_entries(root, entries)
    assert (root / FILE).is_file()
