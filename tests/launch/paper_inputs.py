"""Inputs of configs/launch/paper.gin for plans: data with the right names, and tiny checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from multiberts.bert.checkpoint.checkpoint import PROVENANCE, write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.coreference.winogender_schemas import FILES as WINOGENDER_FILES


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


def write_checkpoints(
    folder: Path,
    checkpoints: Sequence[tuple[str, int | None, int | None]],
    size: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Writes tiny checkpoints of equal weights, and returns their folders by procedure.

    Args:
      checkpoints: (procedure, pretrain_seed, step).
      size: entries of their bert_config.json, for plans, which read no weights.
    """
    vocabulary = folder / "vocab.txt"
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, "a", "b"]) + "\n")
    config = BertConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=16, max_position_embeddings=512,
    )  # fmt: skip
    parameters = initial_parameters(config, 0)
    for procedure, seed, step in checkpoints:
        facts = {"procedure": procedure, "pretrain_seed": seed, "step": step}
        place = folder / procedure / f"{seed}-{step}"
        write_checkpoint(place, parameters, config, Vocabulary.open(vocabulary), facts)
        if size is not None:
            described, record = place / "bert_config.json", place / PROVENANCE
            described.write_text(json.dumps({**json.loads(described.read_text()), **size}))
            without_it = json.loads(record.read_text())
            del without_it["files"][described.name]
            record.write_text(json.dumps(without_it))
    return {procedure: str(folder / procedure) for procedure, *_ in checkpoints}
