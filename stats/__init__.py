"""Statistics over seeds and examples: comparing, planning, components, single examples, intervals.

    from multiberts import stats

Everything that is documented is here; modules below it may move. A name is imported when it is first
used. Nothing here imports TensorFlow; pandas, xarray and Matplotlib are imported where they are needed.
"""

import sys
from typing import TYPE_CHECKING

from multiberts.stats.public_names import LazyPackage

if TYPE_CHECKING:
    from multiberts.evaluate.metrics.register import METRICS
    from multiberts.stats.answers.borrowed_spread import SeedSpread, one_seed
    from multiberts.stats.answers.early_looks import early_look
    from multiberts.stats.answers.published_number import Reproduction, reproduce
    from multiberts.stats.answers.sameness import same
    from multiberts.stats.answers.slicing import slices
    from multiberts.stats.b3.fit import search_b3, solve_b3
    from multiberts.stats.b3.leakage import binomial_matrix, leakage_levels
    from multiberts.stats.b3.model import B3CrossValidator, b3
    from multiberts.stats.bootstrap.published import multibootstrap, report_ci
    from multiberts.stats.compare.arms import compare_arms
    from multiberts.stats.compare.question import TaskData, compare
    from multiberts.stats.compare.ranking import ArmComparisons
    from multiberts.stats.compare.result import Comparison
    from multiberts.stats.compare.tasks import TaskComparisons, compare_tasks
    from multiberts.stats.corrections import adjusted_p_values
    from multiberts.stats.instances.decomposition import decompose
    from multiberts.stats.instances.ensembles import ensemble, single_runs
    from multiberts.stats.instances.example_learning import learning
    from multiberts.stats.instances.instance_level import (
        decay_bound,
        fisher_tests,
        improvement_bound,
        instance_accuracy,
        relative_threshold_bias,
        threshold_bias,
    )
    from multiberts.stats.instances.run_agreement import agreement
    from multiberts.stats.instances.size_momentum import momentum
    from multiberts.stats.instances.variance_by_bias import conditional_variance
    from multiberts.stats.intervals import ConfidenceInterval, PValues
    from multiberts.stats.report.own_files import read
    from multiberts.stats.sequential import sequential_decision
    from multiberts.stats.variance.components import (
        VarianceComponents,
        nested_variance_components,
        unpaired_components,
        variance_components,
    )
    from multiberts.stats.variance.plan import Plan
    from multiberts.stats.variance.randomness_sources import seed_sources

__all__ = [
    "METRICS",
    "ArmComparisons",
    "B3CrossValidator",
    "Comparison",
    "ConfidenceInterval",
    "PValues",
    "Plan",
    "Reproduction",
    "SeedSpread",
    "TaskComparisons",
    "TaskData",
    "VarianceComponents",
    "adjusted_p_values",
    "agreement",
    "b3",
    "binomial_matrix",
    "compare",
    "compare_arms",
    "compare_tasks",
    "conditional_variance",
    "decay_bound",
    "decompose",
    "early_look",
    "ensemble",
    "fisher_tests",
    "improvement_bound",
    "instance_accuracy",
    "leakage_levels",
    "learning",
    "momentum",
    "multibootstrap",
    "nested_variance_components",
    "one_seed",
    "read",
    "relative_threshold_bias",
    "report_ci",
    "reproduce",
    "same",
    "search_b3",
    "seed_sources",
    "sequential_decision",
    "single_runs",
    "slices",
    "solve_b3",
    "threshold_bias",
    "unpaired_components",
    "variance_components",
]

sys.modules[__name__].__class__ = LazyPackage
