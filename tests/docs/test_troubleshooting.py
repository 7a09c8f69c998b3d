"""The page on troubleshooting quotes what the commands print.

`python tests/docs/test_troubleshooting.py` writes it anew.
"""

import re
import tempfile
from pathlib import Path

import pandas as pd
import pytest

from multiberts.pretrain.world.synthetic_world import make_world
from multiberts.tests.tools import warm

pytestmark = pytest.mark.processes

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
QUOTED = re.compile(r"^    \$ multiberts (.*)\n    (.*)$", flags=re.MULTILINE)


def printed(command: str, folder: Path) -> str:
    """Returns the line that a command ends with, which reports a mistake of its input."""

    done = warm.run(command.split(), folder)
    assert done.returncode == 2, command
    return (done.stdout + done.stderr).strip()


def page_as_printed(folder: Path) -> str:
    """Returns the page with what its commands print now, on damaged files in a folder."""
    predictions = folder / "world" / "predictions"
    make_world(run_dir=str(folder / "world"))
    good = pd.read_csv(predictions / "new.csv")
    damaged = {
        "renamed": good.rename(columns={"prediction": "out"}),
        "noseed": good.drop(columns="seed"),
        "nolabel": good.drop(columns="label"),
        "twice": pd.concat([good, good[:5]]),
        "otherids": good.assign(id="x" + good["id"].astype(str)),
        "otherlabels": good.assign(label=1 - good["label"]),
        "missing": good[(good["seed"] != 2) | (good["id"] != 3)],
        "one": good[good["seed"] == 0],
        "hidden": good.assign(label=-1),
        "constant": good.assign(prediction=1),
        "splits": good.assign(split=(good["id"] < 300).map({True: "train", False: "test"})),
        "wide": good.pivot(index="id", columns="seed", values="prediction")
        .rename(columns="new_{}".format)
        .reset_index(),
        "sets": good.assign(label=["sad|late", "sad", "late", "fun"] * (len(good) // 4)),
        "grouped": good.assign(cluster=(good["id"] // 4).astype(str).where(good["id"] > 9, "")),
    }
    for name, table in damaged.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    text = (folder / "one.csv").read_text().replace("0,3,", "0,café,")
    (folder / "latin.csv").write_bytes(text.encode("latin-1"))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "der", "die", "das"]
    (folder / "german.txt").write_text("\n".join(pieces) + "\n")
    return QUOTED.sub(
        lambda found: f"    $ multiberts {found[1]}\n    {printed(found[1], folder)}",
        PAGE.read_text(encoding="utf-8"),
    )


def test_the_page_quotes_what_the_commands_print(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(QUOTED.findall(page)) >= 20
    assert page_as_printed(tmp_path) == page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, warm.servers():
        PAGE.write_text(page_as_printed(Path(folder)), encoding="utf-8")
