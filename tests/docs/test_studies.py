"""The block of docs/studies.md finds, from finished runs, which source of randomness moves their scores."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.scoring import score
from multiberts.tests.report.test_reporting import pair_columns
from multiberts.tests.worlds import write_run

PAGE = Path(__file__).parents[2] / "docs/studies.md"


@pytest.mark.seconds
def test_ten_lines_lead_from_finished_runs_to_the_shares_of_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights' seed moves the score, dropout's does not; two fine-tuning seeds are averaged."""
    skills = np.random.default_rng(0).uniform(0.5, 0.9, 3)
    cells = itertools.product(range(3), range(3), range(3))
    for number, (initialisation, data, dropout) in enumerate(cells):
        for finetune_seed in range(2):
            facts = {
                "task": "facts", "procedure": "base", "step": 5, "learning_rate": 1e-4,
                "pretrain_seed": number, "data_seed": data, "finetune_seed": finetune_seed,
                "seeds": {"initialisation_seed": initialisation, "dropout_seed": dropout},
            }  # fmt: skip
            columns = pair_columns(skills[initialisation], initialisation, finetune_seed)
            run = tmp_path / f"seed_sources/finetune/facts/{number}/{finetune_seed}"
            write_run(run, {"dev": columns}, **facts)
    monkeypatch.chdir(tmp_path)
    score(run_dir="seed_sources/scores", predictions="seed_sources/finetune")
    capsys.readouterr()
    [block] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    shares = {"initialisation_seed": "1.0", "data_seed": "0.0", "dropout_seed": "0.0"}
    assert [line[:7] for line in printed] == [
        ["facts", "dev", "base", "5", "0.0001", source, share] for source, share in shares.items()
    ]
