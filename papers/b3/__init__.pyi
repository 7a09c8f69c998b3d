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
