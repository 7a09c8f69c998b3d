"""Names of the published MultiBERTs: `multiberts-seed_0`, `multiberts-seed_0-step_20k`, ..."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

RELEASED_PROCEDURE = "multiberts"
# Names of the procedures in predictions, tables and configurations.
OWN_NAME_OF_RELEASED_PROCEDURE = "base"
RELEASED_STEPS = 2_000_000

# The first copies on the Hugging Face hub use the second form of the separators.
_NAME = re.compile(r"multiberts-seed[_-](?P<seed>\d{1,18})(?:-(?:step_)?(?P<thousands>\d+)k)?")
# Folders in the release's archives, with the seed but not the procedure in the name.
_IN_ARCHIVE = re.compile(r"(.*/)?seed_(?P<seed>\d{1,18})(/step_(?P<thousands>\d+)k)?")


@dataclasses.dataclass(frozen=True)
class ReleaseName:
    """Facts in a name; None if the name lacks them."""

    procedure: str | None
    pretrain_seed: int
    step: int | None


def release_name(pretrain_seed: int, step: int | None = None) -> str:
    """Returns a checkpoint's name in the release.

    Args:
      step: number of finished updates, a multiple of 1,000; None for the seed's last checkpoint.

    Examples:
      `release_name(0, 20_000)` is `multiberts-seed_0-step_20k`.
    """
    if pretrain_seed < 0:
        raise UserError(f"pretrain_seed is {pretrain_seed}; names of the release start at seed 0")
    if step is None:
        return f"{RELEASED_PROCEDURE}-seed_{pretrain_seed}"
    if step < 0 or step % 1000:
        raise UserError(
            f"step {step} has no name as the release writes them (whole thousands, such as "
            "step_20k); choose the directory's name yourself"
        )
    return f"{RELEASED_PROCEDURE}-seed_{pretrain_seed}-step_{step // 1000}k"


def parse_release_name(directory: PathLike) -> ReleaseName | None:
    """Reads procedure, seed and step of a checkpoint from the name of its directory.

    Supports names in the release, in its copies on the Hugging Face hub (also in the hub's local cache), and
    in unpacked archives (`seed_0` or `seed_0/step_20k`).

    Args:
      directory: a checkpoint's directory; only its name is used.

    Returns:
      The facts, None if unknown. A MultiBERTs name without a step means the last checkpoint.
    """
    path = Path(directory).resolve()
    if path.parent.name == "snapshots":  # .../models--google--multiberts-seed_0/snapshots/<hash>
        path = path.parent.parent
    match = _NAME.fullmatch(path.name.rsplit("--", 1)[-1])
    if match:
        last = 1000 * int(match["thousands"]) if match["thousands"] else RELEASED_STEPS
        return ReleaseName(RELEASED_PROCEDURE, int(match["seed"]), last)
    if match := _IN_ARCHIVE.fullmatch(f"{path.parent.name}/{path.name}"):
        step = 1000 * int(match["thousands"]) if match["thousands"] else None
        return ReleaseName(None, int(match["seed"]), step)
    return None
