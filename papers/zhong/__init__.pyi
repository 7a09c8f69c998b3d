from multiberts.papers.multiberts.run_agreement import agreement
from multiberts.papers.zhong.decomposition import decompose
from multiberts.papers.zhong.ensembles import ensemble, single_runs
from multiberts.papers.zhong.instance_level import (
    decay_bound,
    fisher_tests,
    improvement_bound,
    instance_accuracy,
    relative_threshold_bias,
    threshold_bias,
)
from multiberts.papers.zhong.size_momentum import momentum
from multiberts.papers.zhong.variance_by_bias import conditional_variance

__all__ = [
    "agreement",
    "conditional_variance",
    "decay_bound",
    "decompose",
    "ensemble",
    "fisher_tests",
    "improvement_bound",
    "instance_accuracy",
    "momentum",
    "relative_threshold_bias",
    "single_runs",
    "threshold_bias",
]
