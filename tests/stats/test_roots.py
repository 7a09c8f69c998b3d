"""`root_between` against SciPy's `brentq`: the same root, from the same steps."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import brentq

from multiberts.stats.roots import root_between

FUNCTIONS = [
    lambda x, root, slope: math.tanh(slope * (x - root)),
    lambda x, root, slope: (x - root) ** 3 + slope * (x - root),
    lambda x, root, slope: math.exp(x) - math.exp(root),
    lambda x, root, slope: math.copysign(abs(x - root) ** 0.3, x - root),
    lambda x, root, slope: 1.0 if x > root else -1.0,
    lambda x, root, slope: max(-0.5, min(0.4, x - root + 0.1 * slope)),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_root_and_steps_are_those_of_brentq(function):
    random = np.random.default_rng(0)

    def outcome(find, values, *ends, **settings):
        steps = []

        def recorded(x):
            steps.append(x)
            return values(x)

        try:
            return find(recorded, *ends, **settings), steps
        except ValueError:
            return "one sign", steps

    for trial in range(200):
        root, slope = random.uniform(-3, 3), random.choice([-1, 1]) * math.exp(random.normal())
        ends = root - math.exp(random.normal()), root + math.exp(random.normal())
        if trial % 20 == 0:
            ends = root, ends[1]
        error = random.choice([2**-50, 1e-10])
        values = partial(function, root=root, slope=slope)
        expected = outcome(brentq, values, *ends, rtol=error)
        assert outcome(root_between, values, *ends, relative=error) == expected


def test_without_a_change_of_sign_there_is_nothing_to_find():
    with pytest.raises(ValueError, match="expected two signs"):
        root_between(lambda x: x * x + 1, -1.0, 1.0)
