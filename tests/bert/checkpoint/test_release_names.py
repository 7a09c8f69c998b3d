from __future__ import annotations

import pytest

from multiberts.bert.checkpoint.release_names import ReleaseName, parse_release_name, release_name
from multiberts.runs.errors import UserError


def test_names_of_the_release() -> None:
    assert release_name(24) == "multiberts-seed_24"
    assert release_name(0, 0) == "multiberts-seed_0-step_0k"
    assert release_name(0, 20_000) == "multiberts-seed_0-step_20k"
    assert release_name(4, 2_000_000) == "multiberts-seed_4-step_2000k"


def test_every_released_name_is_parsed_back() -> None:
    """25 seeds at the end; 28 steps and step 0 of seeds 0 to 4."""
    steps = [0, *range(20_000, 200_001, 20_000), *range(300_000, 2_000_001, 100_000)]
    assert len(steps) == 29
    for seed in range(25):
        assert parse_release_name(release_name(seed)) == ReleaseName("multiberts", seed, 2_000_000)
    for seed in range(5):
        for step in steps:
            name = f"some/folder/{release_name(seed, step)}"
            assert parse_release_name(name) == ReleaseName("multiberts", seed, step)


@pytest.mark.parametrize(
    ("directory", "expected"),
    [
        ("hub/models--google--multiberts-seed_3-step_40k/snapshots/5be6", ("multiberts", 3, 40_000)),
        ("MultiBertGunjanPatrick/multiberts-seed-2-1100k", ("multiberts", 2, 1_100_000)),
        # What the archives unpack to: nothing says whose seed it is.
        ("models/seed_7", (None, 7, None)),
        ("intermediates/seed_1/step_160k", (None, 1, 160_000)),
    ],
)  # fmt: skip
def test_names_of_copies(directory: str, expected: tuple[str | None, int, int | None]) -> None:
    assert parse_release_name(directory) == ReleaseName(*expected)


@pytest.mark.parametrize("name", ["step_20", "my-multiberts-seed_0", "bert-base-uncased", "seed_x"])
def test_other_names_say_nothing(name: str) -> None:
    assert parse_release_name(f"folder/{name}") is None


@pytest.mark.parametrize(("seed", "step"), [(0, 1500), (0, -1000), (-1, None)])
def test_no_name_for_what_the_release_cannot_name(seed: int, step: int | None) -> None:
    with pytest.raises(UserError, match="release"):
        release_name(seed, step)
