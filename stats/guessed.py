"""Advice on guessed names: keywords, attributes of results and public names that do not exist.

Each table maps guesses to the right code, in which `result` is a comparison and a keyword's name stands for
its value.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from multiberts.runs.errors import nearest
from multiberts.stats.errors import DataError

P = ParamSpec("P")
R = TypeVar("R")

KEYWORDS = {
    "alpha": "confidence_level=1 - alpha",
    "level": "confidence_level=level",
    "confidence": "confidence_level=confidence",
    "ci": "confidence_level=ci",
    "alternative": "result.p_values['t'].greater or result.p_values['t'].less",
    "paired": "design='paired' if paired else 'unpaired'",
    "random_state": "rng=random_state",
    "seed": "rng=seed",
    "n_boot": "n_resamples=n_boot",
    "n_bootstrap": "n_resamples=n_bootstrap",
    "B": "n_resamples=B",
    "cluster": "clusters=cluster",
    "groups": "clusters=groups",
    "y_true": "labels=y_true",
    "statistic": "metric=statistic",
    "power": "target_power=power",
    "margin": "stats.same(result, margin)",
    "by": "stats.slices(result, by)",
    "seed_sd": ("stats.one_seed(stats.compare(base, experiment, resample='examples'), seed_sd)"),
    "names": "result.named(*names)",
    "base_name": "result.named(base_name, experiment_name)",
    "experiment_name": "result.named(base_name, experiment_name)",
    "name": "result.named(base_name, experiment_name, name=name)",
    "evaluation_set": "result.named(base_name, experiment_name, evaluation_set=evaluation_set)",
}

# Aliases of keywords, accepted by functions with the real keyword.
_ALIASES = {"seeds": "num_seeds", "examples": "num_examples"}

ATTRIBUTES = {
    **dict.fromkeys(("pvalue", "p", "pval", "p_val"), "result.p_value"),
    **dict.fromkeys(("confidence_interval", "conf_int", "interval"), "result.ci"),
    **dict.fromkeys(("ci_low", "lower"), "result.ci.low"),
    **dict.fromkeys(("ci_high", "upper"), "result.ci.high"),
    "summary": "print(result)",
    **dict.fromkeys(("se", "stderr", "std_err"), "result.standard_error"),
    **dict.fromkeys(("effect", "effect_size", "cohens_d"), "result.hedges_g"),
    "power": "result.plan().power()",
    "to_latex": "result.latex()",
    "to_csv": "result.table().csv()",
    "to_json": "result.to_dict()",
    **dict.fromkeys(("diff", "difference", "delta"), "result.estimate"),
    **dict.fromkeys(("t", "tstat"), "result.statistic"),
    "dof": "result.df",
}

PUBLIC_NAMES = {
    **dict.fromkeys(
        ("tost", "equivalence", "noninferiority", "non_inferiority"), "stats.same(result, margin)"
    ),
    **dict.fromkeys(("holm", "multipletests"), "stats.adjusted_p_values(p_values, 'holm')"),
    **dict.fromkeys(("icc", "intraclass_correlation"), "stats.variance_components(scores)"),
    "crossing_of_tables": "stats.variance_components(scores)",
    "plan": "result.plan()",
    "mde": "result.plan().minimum_detectable_effect()",
    "power": "result.plan().power()",
    "sample_size": "result.plan().seeds_needed()",
    **dict.fromkeys(("bootstrap", "ttest", "t_test"), "stats.compare(base, experiment)"),
    **dict.fromkeys(("from_frame", "read_predictions", "load"), "stats.read(data)"),
    "runs_from_dataset": "(data['prediction'] == data['label']).to_numpy()",
    **dict.fromkeys(
        (
            "confidence_interval",
            "t_interval",
            "fisher_t_interval",
            "score_interval",
            "clopper_pearson_interval",
        ),
        "result.ci",
    ),
    "percentile_interval": "result.intervals['percentile']",
    "t_p_values": "result.p_values['t']",
    "sign_flip_p_values": "result.p_values['sign flip']",
    "permutation_p_values": (
        "stats.compare(base, experiment, design='unpaired').p_values['permutation']"
    ),
    **{f"{name}_b3": f"stats.b3.{name}" for name in ("estimate", "solve")},
}


_NUMBERS = "result.to_frame() has every number"


class UnknownKeyword(DataError, TypeError):
    """Raised for an unknown keyword; a `TypeError`, as in Python."""


def knows_guesses(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function suggest the meaning of unknown keywords.

    Examples:
      >>> @knows_guesses
      ... def interval(confidence_level=0.95): ...
      >>> interval(alpha=0.1)
      Traceback (most recent call last):
      multiberts.stats.guessed.UnknownKeyword: interval has no keyword alpha; write confidence_level=1 - alpha
    """
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in (kwargs.keys() & _ALIASES) - {*parameters}:
            if _ALIASES[name] in parameters and _ALIASES[name] not in kwargs:
                kwargs[_ALIASES[name]] = kwargs.pop(name)
        refuse_unknown(function.__name__, kwargs, parameters)
        return function(*args, **kwargs)

    return checked


def refuse_unknown(function: str, keywords: Iterable[str], parameters: Sequence[str]) -> None:
    """Refuses the first unknown keyword and suggests its meaning."""
    for name in keywords:
        if name not in parameters:
            meant = KEYWORDS.get(name, "")
            keyword = meant.partition("=")[0]
            cure = f"write {meant}"
            if not meant or (keyword.isidentifier() and keyword not in parameters):
                cure = nearest(name, [each for each in parameters if each != "self"])
            raise UnknownKeyword(f"{function} has no keyword {name}; {cure}")


class KnowsGuesses:
    """Base class of results that suggests the meaning of unknown attributes."""

    if not TYPE_CHECKING:  # otherwise mypy and editors accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raises an AttributeError that suggests an attribute."""
            start = f"{type(self).__name__} has no attribute {name}"
            if name.startswith("_"):  # pickle, copy and notebooks ask for these
                raise AttributeError(start)
            meant = ATTRIBUTES.get(name, "")
            attribute = re.search(r"result\.(\w+)", meant)
            if meant and (attribute is None or hasattr(self, attribute[1])):
                raise AttributeError(f"{start}; write {meant}")
            raise AttributeError(f"{start}; {_nearest(name, dir(self), _NUMBERS)}")


def unknown_public_name(name: str, names: Iterable[str], package: str = "multiberts.stats") -> str:
    """Returns the error message for an unknown name of a package.

    Args:
      names: existing names, with a prefix for subpackages, such as `zhong.learning`.
    """
    start = f"{package} has no attribute {name}"
    if name in PUBLIC_NAMES:
        return f"{start}; write {PUBLIC_NAMES[name]}"
    for moved in names:
        if moved.endswith(f".{name}"):
            return f"{start}; write stats.{moved}"
    otherwise = f"dir({package.partition('.')[2]}) lists what there is"
    return f"{start}; {_nearest(name, names, otherwise)}"


def _nearest(name: str, names: Iterable[str], otherwise: str) -> str:
    return nearest(name, [each for each in names if not each.startswith("_")], otherwise)
