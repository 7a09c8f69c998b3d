from multiberts import SeedSpread, b3, one_seed, read, reproduce, same, slices, write_html, zhong
from multiberts.evaluate.metrics.register import METRICS
from multiberts.stats.bootstrap.published import multibootstrap, report_ci
from multiberts.stats.compare.arms import compare_arms
from multiberts.stats.compare.prepared_arms import TaskData
from multiberts.stats.compare.ranking import ArmComparisons
from multiberts.stats.compare.result import Comparison
from multiberts.stats.compare.tasks import TaskComparisons, compare_tasks
from multiberts.stats.compare.two_arms import compare
from multiberts.stats.intervals import ConfidenceInterval, PValues
from multiberts.stats.significance import adjusted_p_values
from multiberts.stats.variance.components import (
    VarianceComponents,
    nested_variance_components,
    variance_components,
)
from multiberts.stats.variance.plan import Plan
from multiberts.stats.variance.randomness_sources import seed_sources

__all__ = [
    "METRICS",
    "ArmComparisons",
    "Comparison",
    "ConfidenceInterval",
    "PValues",
    "Plan",
    "SeedSpread",
    "TaskComparisons",
    "TaskData",
    "VarianceComponents",
    "adjusted_p_values",
    "b3",
    "compare",
    "compare_arms",
    "compare_tasks",
    "multibootstrap",
    "nested_variance_components",
    "one_seed",
    "read",
    "report_ci",
    "reproduce",
    "same",
    "seed_sources",
    "slices",
    "variance_components",
    "write_html",
    "zhong",
]
