"""The commands with their configurations: import, score, export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas

from multiberts.tests.tools import warm


def test_from_others_files_to_a_table(tmp_path: Path):
    """Two runs in the release's layout, imported, scored and exported."""
    folder = tmp_path / "GLUE"
    (folder / "RTE").mkdir(parents=True)
    lines = ["file\ttask\tpretrain_id\tn_steps\tlr\tft_seed\trelease"]
    for seed, right in ((0, 3), (1, 4)):
        name = f"RTE/release=multiberts,pretrain_id={seed},n_steps=2M,lr=2e-05,ft_seed=0.tsv"
        table = np.where(np.arange(4)[:, None] < right, [[0.1, 0.9]], [[0.8, 0.2]])
        np.savetxt(folder / name, table, delimiter="\t")
        lines.append(f"{name}\tRTE\t{seed}\t2M\t0.00002\t0\tmultiberts")
    (folder / "index.tsv").write_text("\n".join(lines) + "\n")
    (folder / "RTE_dev_labels").write_text("1\n" * 4)
    runs, scores, table_file = (tmp_path / name for name in ("runs", "scores", "all.parquet"))
    for arguments in (
        f"import --gin_file=configs/evaluate/multiberts_release.gin --run_dir={runs} --source={folder}",
        f"evaluate --gin_file=configs/evaluate/scores.gin --run_dir={scores} --predictions={runs}",
        f"export --gin_param=export.path='{table_file}' --gin_param=export.predictions='{runs}'",
    ):
        done = warm.run(arguments.split())
        assert (done.returncode, done.stderr) == (0, ""), arguments
    rows = pandas.read_csv(scores / "scores.csv").set_index(["metric", "pretrain_seed"])["score"]
    assert rows["accuracy", 0] == 0.75 and rows["accuracy", 1] == 1
    assert abs(rows["brier", 1] - 0.01) < 1e-6
    assert len(pandas.read_parquet(table_file)) == 8
    config = next(runs.rglob("config.gin")).read_text()
    assert "import_predictions.layout = 'multiberts'" in config
    assert json.loads(next(runs.rglob("run.json")).read_text())["source"].startswith("MultiBERTs")
