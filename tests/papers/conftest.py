"""Figures are sketches; the made-up paper, and sizes of models."""

import numpy as np
import pytest

from multiberts.papers.zhong.analysis import analyse_sizes
from multiberts.tests.report.conftest import prediction_sets  # noqa: F401
from multiberts.tests.sketches import drawn_where_marked, sketched  # noqa: F401


def chosen(sets, task, procedure=None):
    """The prediction sets of a task, and of one procedure where it is given."""
    return [one for one in sets if one.task == task and procedure in (None, one.procedure)]


@pytest.fixture(scope="session")
def sizes():
    """Correctness of three sizes, [6 seeds, 3 runs, 300 examples] each.

    One example in ten gets harder with size.
    """
    random = np.random.default_rng(0)
    start = random.normal(1, 2, 300)
    step = np.where(random.random(300) < 0.1, -2.0, 1.0)
    correct = {}
    for number, size in enumerate(("mini", "medium", "large")):
        luck = random.normal(0, 0.5, (6, 1, 300)) + random.normal(
            0, 0.3 + 0.2 * number, (6, 3, 300)
        )
        correct[size] = (start + number * step + luck > 0).astype(np.uint8)
    return correct


@pytest.fixture(scope="session")
def analysis(sizes):
    plain = {size: runs[:, 0] for size, runs in sizes.items()}
    return analyse_sizes({"NLI": sizes, "one run": plain}, n_resamples=40)
