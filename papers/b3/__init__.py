"""B3 (Barnes and Dubrawski, 2017): the loss of a learner on new clusters. Public as `stats.b3`."""

import sys
from typing import TYPE_CHECKING

from multiberts.stats.public_names import LazyPackage

if TYPE_CHECKING:
    from multiberts.papers.b3.fit import Regularisation, profile, solve
    from multiberts.papers.b3.leakage import LeakageSampling, binomial_matrix, leakage_levels
    from multiberts.papers.b3.model import B3Model, estimate

__all__ = [
    "B3Model",
    "LeakageSampling",
    "Regularisation",
    "binomial_matrix",
    "estimate",
    "leakage_levels",
    "profile",
    "solve",
]

sys.modules[__name__].__class__ = LazyPackage
