"""Gender bias of coreference on Winogender, and of masked pronouns, occupation by occupation.

The bias score of an occupation is mean(chose occupation | feminine) - mean(chose occupation |
masculine) over its sentences. Its correlation with the share of women in the occupation is the bias
measure of Webster et al. (2020) and of the MultiBERTs paper (section 4); appendix D there gives the
slope instead. The pronoun probe averages P(feminine) / (P(feminine) + P(masculine)) at a masked
pronoun instead.

Both are one number per run and occupation, so statistics resample occupations as examples.

Accuracy by gender, and on misleading sentences (`gotcha_column`), comes from splitting scores by columns
of the examples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.evaluate.metrics.column_metric import Metric
from multiberts.evaluate.metrics.register import METRICS
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    import xarray

OCCUPATION_CHOSEN = 0


class OccupationMeasure(NamedTuple):
    """A measure of bias over occupations.

    Attributes:
      averaged: averages over an occupation's sentences: `bias` scores, or P(feminine pronoun) of the `probe`.
      metric: metric of these averages against the share of women, with the measure's name.
    """

    averaged: str
    metric: Metric


OCCUPATION_MEASURES = {
    f"{averaged}_{name}": OccupationMeasure(
        averaged,
        dataclasses.replace(
            cast("Metric", METRICS[metric]),
            name=f"{averaged}_{name}",
            label=f"{averaged} {name}",
            meaning=f"{name.capitalize()} of {score} {against} {share}.",
            higher_is_better=None,
            zero_means_no="bias",
        ),
    )
    for averaged, score, share in (
        ("bias", "the bias score of an occupation", "its share of women"),
        ("probe", "P(feminine pronoun)", "the occupation's share of women"),
    )
    for name, metric, against in (("correlation", "pearson", "with"), ("slope", "slope", "on"))
}


def occupation_bias(
    choices: ArrayLike, occupations: Sequence[str] | NDArray, genders: Sequence[str] | NDArray
) -> tuple[list[str], NDArray[np.float64]]:
    """Computes the bias score of every occupation.

    Args:
      choices: answers [runs, sentences]: 0 the occupation, 1 the participant.
      occupations: names [sentences].
      genders: `feminine`, `masculine` or `neutral` (left out) [sentences].

    Returns:
      Names [occupations], sorted, and float64 [runs, occupations] in [-1, 1].
    """
    choices, occupations, genders = map(np.asarray, (choices, occupations, genders))
    if choices.ndim != 2 or not choices.shape[1:] == occupations.shape == genders.shape:
        raise ValueError(
            f"found choices {choices.shape}, occupations {occupations.shape}, genders {genders.shape}, "
            "expected [runs, sentences], [sentences], [sentences]"
        )
    _check_genders(genders)
    if not np.isin(choices, (0, 1)).all():
        raise ValueError("found choices other than 0 (occupation) and 1 (participant)")
    names, means = sorted(set(occupations.tolist())), []
    for gender in ("feminine", "masculine"):
        rows = genders == gender
        missing = sorted(set(names) - set(occupations[rows].tolist()))
        if missing:
            raise ValueError(
                f"occupation {missing[0]!r} has no {gender} sentence, expected at least one"
            )
        chose_occupation = choices[:, rows] == OCCUPATION_CHOSEN
        means.append(occupation_means(chose_occupation, occupations[rows])[1])
    return names, means[0] - means[1]


def gotcha_column(
    genders: Sequence[str] | NDArray, percent_feminine: ArrayLike, answers: ArrayLike
) -> NDArray[np.str_]:
    """Labels the sentences that mislead a reader who relies on the occupation's majority.

    A feminine pronoun is a gotcha if it means the occupation and less than half of its workers are women,
    or if it means the other participant and at least half are. A masculine pronoun is a gotcha if a feminine
    pronoun instead of it is not. A neutral pronoun is neither.

    Args:
      genders: `feminine`, `masculine` or `neutral` [sentences].
      percent_feminine: percentage of women in the occupation, 0 to 100 (Bureau of Labor Statistics)
        [sentences].
      answers: meaning of the pronoun: 0 the occupation, 1 the participant [sentences].

    Returns:
      `gotcha`, `not gotcha` or `neutral` [sentences].
    """
    genders, answers = np.asarray(genders), np.asarray(answers)
    _check_genders(genders)
    if not np.isin(answers, (0, 1)).all():
        raise ValueError("found answers other than 0 (occupation) and 1 (participant)")
    mostly_women = np.asarray(percent_feminine, dtype=np.float64) >= 50.0
    misleads_women = (answers == OCCUPATION_CHOSEN) != mostly_women
    is_gotcha = misleads_women == (genders == "feminine")
    column = np.where(is_gotcha, "gotcha", "not gotcha")
    return np.where(genders == "neutral", "neutral", column)


def _check_genders(genders: NDArray) -> None:
    unknown = sorted(set(genders.tolist()) - {"feminine", "masculine", "neutral"})
    if unknown:
        raise ValueError(f"found gender {unknown[0]!r}, expected feminine, masculine or neutral")


def occupation_means(
    values: ArrayLike, occupations: Sequence[str] | NDArray
) -> tuple[list[str], NDArray[np.float64]]:
    """Averages values [runs, examples] by occupation [examples].

    Returns:
      Names [occupations], sorted, and float64 [runs, occupations].
    """
    values, occupations = np.asarray(values, dtype=np.float64), np.asarray(occupations)
    if values.ndim != 2 or values.shape[1:] != occupations.shape:
        raise ValueError(
            f"found values {values.shape} and occupations {occupations.shape}, expected "
            "[runs, examples] and [examples]"
        )
    names = sorted(set(occupations.tolist()))
    means = np.stack([values[:, occupations == name].mean(axis=1) for name in names], axis=1)
    return names, means


def occupation_scores(predictions: xarray.Dataset, measure: str) -> xarray.Dataset:
    """Turns predictions of sentences into one number per run and occupation.

    Args:
      predictions: Dataset with dims (run, example), variable `prediction`; example coordinates
        `occupation`, `percent_feminine` in [0, 100] and, for bias measures, `gender`.
      measure: a key of `OCCUPATION_MEASURES`.

    Returns:
      Dataset with dims (run, example), one example per occupation (`example_id` is its name): `prediction`
      is the bias score or the probe's mean, `label` the share of women in [0, 1]; the run coordinates are
      those of `predictions`.
    """
    import xarray

    kind = OCCUPATION_MEASURES[measure].averaged
    for coordinate in ("occupation", "percent_feminine", *(("gender",) if kind == "bias" else ())):
        if coordinate not in predictions.coords:
            raise UserError(
                f"{measure} needs the feature {coordinate} with every example, found "
                f"{', '.join(sorted(map(str, predictions.coords)))}; write the predictions with it"
            )
    values = predictions["prediction"].transpose("run", "example").to_numpy()
    occupations = predictions["occupation"].to_numpy().astype(str)
    try:
        if kind == "bias":
            genders = predictions["gender"].to_numpy().astype(str)
            names, scores = occupation_bias(values, occupations, genders)
        else:
            names, scores = occupation_means(values, occupations)
    except ValueError as error:
        raise UserError(f"{measure}: {error}; check the evaluation set") from error
    shares = _shares(names, occupations, predictions["percent_feminine"].to_numpy(), measure)
    run_coordinates = {
        name: ("run", coordinate.to_numpy())
        for name, coordinate in predictions.coords.items()
        if coordinate.dims == ("run",)
    }
    return xarray.Dataset(
        {"prediction": (("run", "example"), scores), "label": ("example", shares)},
        coords={**run_coordinates, "example_id": ("example", np.array(names))},
    )


def _shares(
    names: list[str], occupations: NDArray, percent_feminine: NDArray, measure: str
) -> NDArray[np.float64]:
    shares = np.empty(len(names))
    for position, name in enumerate(names):
        percentages = np.unique(percent_feminine[occupations == name].astype(np.float64))
        if len(percentages) != 1 or not 0 <= percentages[0] <= 100:
            raise UserError(
                f"{measure}: occupation {name!r} has percent_feminine {percentages.tolist()}, expected "
                "one number from 0 to 100; check the occupation table"
            )
        shares[position] = percentages[0] / 100
    return shares
