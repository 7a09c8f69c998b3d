"""Compares k-fold, leave-one-cluster-out and B3 with the true loss on new clusters in simulated data.

Run `python -m benchmarks.b3_experiment`; compare figure 3a of Barnes and Dubrawski (UAI 2017). The paper does
not fully describe its synthetic data, so we use this model. A true cluster c has a mean m_c and a tilt g_c,
both normal; its samples have features x = m_c + normal noise and the label sign(x . (w + g_c) + noise). The
learner is ridge regression on labels of -1 and 1, with 0/1 loss. If the training set contains samples of the
test sample's cluster, the learner learns the tilt, and its loss is lower than on new clusters.

Observed clusters are true clusters with errors. In *one* direction a share of each cluster's samples (the
noise) is moved to observed clusters of one sample each; the remaining clusters are pure, and the moved
samples leak. In *two* directions this share is permuted among clusters, so that observed clusters also
contain samples of other true clusters. Leakage then differs between samples, and the model of B3, with one
p_0 and one purity, holds on average only.

All estimators train on the same number of draws with replacement, and differ only in the source of the draws:
k-fold uses all samples of the other folds; leave-one-cluster-out uses all other observed clusters (level 0 of
B3); B3 adds increasing shares of the tested cluster. The true loss is that of training on all true clusters
except one and testing on newly simulated clusters. Leaving out one *true* cluster, which is impossible in
practice, shows the result of a perfect correction: its error is due to the small number of simulated
clusters, and all estimators share it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.command_line.command import run_command
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS, canvas, figure_bytes
from multiberts.runs.files import write_atomically
from multiberts.stats.b3.fit import search, solve
from multiberts.stats.b3.leakage import LeakageDesign, LeakageSampling, leakage_levels
from multiberts.stats.b3.trend_filter import Regularisation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

# Estimators in the order of tables and figures.
ESTIMATORS = (
    "k-fold",
    "leave one cluster out",
    "B3, p_0 known",
    "B3, p_0 searched",
    "leave one true cluster out",
)
# Estimators in figures. The search would dominate the scale, because it only bounds p_0 from above; the last
# estimator uses the true clusters, and its error is the sampling error common to all.
DRAWN = ESTIMATORS[:3]
CSV_COLUMNS = ("noise", "repetition", "p_0", "purity", "truth", *ESTIMATORS, "searched p_0")
_CANDIDATES = tuple(number / 50 for number in range(16))
_CHUNK = 1000


class ClusteredSamples(NamedTuple):
    """Samples with known true clusters.

    Attributes:
      features: [samples, features].
      labels: -1 or 1 [samples].
      clusters: true cluster of each [samples].
    """

    features: Floats
    labels: Floats
    clusters: Indices


def b3_experiment(
    *,
    run_dir: str,
    noises: Sequence[float] = (0.0, 0.1, 0.25, 0.5, 0.75),
    directions: str = "one",
    num_repetitions: int = 40,
    num_clusters: int = 6,
    cluster_size: int = 100,
    num_features: int = 10,
    tilt: float = 1.0,
    spread: float = 0.5,
    label_noise: float = 0.5,
    ridge: float = 1.0,
    num_train: int = 100,
    num_draws: int = 1000,
    num_folds: int = 10,
    trend_order: int = 3,
    trend_weight: float = 0.1,
    num_new_clusters: int = 200,
    simulation_seed: int = 0,
    rng: int = 0,
) -> None:
    """Compares the estimators on simulated data sets (worlds) and writes a table and a figure.

    Each finished repetition is saved; after an interruption the same command resumes. The defaults take a few
    minutes on one core.

    Args:
      run_dir: folder for `results.csv`, `table.md` and `figure.svg`.
      noises: shares of each true cluster's samples with a wrong observed cluster.
      directions: `one` or `two`; see the module.
      num_repetitions: number of worlds, used for each noise.
      num_clusters: number of true clusters in a world.
      cluster_size: number of samples in each true cluster.
      num_features: number of features.
      tilt: standard deviation of g_c, relative to w of length 1.
      spread: standard deviation of m_c, relative to a standard deviation of 1 of the features' noise.
      label_noise: standard deviation of the noise in the label's sign.
      ridge: penalty of the learner, in units of samples.
      num_train: n', number of training samples per draw (paper: 100); there are 2 n' + 1 levels.
      num_draws: number of draws at each level (paper: 1000 for synthetic data).
      num_folds: number of folds of k-fold.
      trend_order: order of B3's trend filter (paper: 2 to 4).
      trend_weight: weight of the trend filter (paper: .1 for synthetic data).
      num_new_clusters: number of new clusters used to compute the true loss.
      simulation_seed: seed of the worlds.
      rng: seed of the draws.

    Raises:
      UserError: a parameter is out of range, or run_dir was made with other parameters.
    """
    parameters = {name: value for name, value in locals().items() if name != "run_dir"}
    parameters["noises"] = list(noises)
    _check(parameters)
    directory = RunDirectory(run_dir, stage="b3_experiment", parameters=parameters)
    if directory.done:
        return
    from tqdm import tqdm

    with directory:
        files = [
            directory.path / "repetitions" / f"{repetition:04d}.json"
            for repetition in range(num_repetitions)
        ]
        for repetition, file in enumerate(tqdm(files, desc="worlds", disable=None)):
            if not file.exists():
                rows = _one_world(parameters, repetition)
                write_atomically(file, json.dumps(rows, indent=1) + "\n")
        rows = [row for file in files for row in json.loads(file.read_text())]
        write_atomically(directory.path / "results.csv", csv_table(rows))
        write_atomically(directory.path / "table.md", markdown_table(rows))
        write_atomically(directory.path / "figure.svg", figure_bytes(experiment_figure(rows)))
        outputs = ["results.csv", "table.md", "figure.svg"]
        directory.finish(outputs + [f"repetitions/{file.name}" for file in files])


def _check(parameters: Mapping[str, Any]) -> None:
    """Refuses parameters for which no world can be simulated."""
    noises, directions = parameters["noises"], parameters["directions"]
    if not noises or not all(0 <= noise < 1 for noise in noises):
        raise UserError(f"found noises {noises}, expected shares from 0 to below 1, at least one")
    if directions not in ("one", "two"):
        raise UserError(f"found directions {directions!r}, expected 'one' or 'two'")
    at_least = {
        "num_repetitions": 2, "num_clusters": 3, "cluster_size": 4, "num_features": 1,
        "num_train": 1, "num_draws": 1, "num_folds": 2, "num_new_clusters": 1, "trend_order": 1,
    }  # fmt: skip
    for name, least in at_least.items():
        if parameters[name] < least:
            raise UserError(f"found {name} {parameters[name]}, expected at least {least}")
    if parameters["num_train"] > parameters["num_clusters"] * parameters["cluster_size"]:
        raise UserError(
            f"found num_train {parameters['num_train']}, expected at most num_clusters x "
            f"cluster_size = {parameters['num_clusters'] * parameters['cluster_size']}"
        )
    together = parameters["cluster_size"] * (1 - max(noises))
    if directions == "one" and together < 2:
        raise UserError(
            f"found noise {max(noises)}, which leaves {together:.3g} samples of a cluster together, "
            "expected 2 or more; lower it or raise cluster_size"
        )


# --- The world ----------------------------------------------------------------------------------


def make_world(parameters: Mapping[str, Any], num_clusters: int, *key: int) -> ClusteredSamples:
    """Simulates clusters; the direction w is (1, ..., 1) / sqrt(features) in every world.

    Args:
      parameters: parameters of `b3_experiment`.
      num_clusters: number of clusters.
      key: identifies the world together with simulation_seed.
    """
    generator = _generator(parameters["simulation_seed"], *key)
    size, width = parameters["cluster_size"], parameters["num_features"]
    means = parameters["spread"] * generator.normal(size=(num_clusters, 1, width))
    tilts = parameters["tilt"] * generator.normal(size=(num_clusters, width, 1)) / np.sqrt(width)
    x = means + generator.normal(size=(num_clusters, size, width))
    noise = parameters["label_noise"] * generator.normal(size=(num_clusters, size))
    signal = (x @ (np.ones((width, 1)) / np.sqrt(width) + tilts))[..., 0] + noise
    clusters = np.repeat(np.arange(num_clusters), size)
    return ClusteredSamples(x.reshape(-1, width), np.where(signal > 0, 1.0, -1.0).ravel(), clusters)


def observe(clusters: Indices, noise: float, directions: str, generator: Any) -> Indices:
    """Simulates observed clusters [samples].

    Args:
      clusters: true clusters [samples], numbered from 0.
      noise: share of each cluster's samples that get a wrong observed cluster.
      directions: `one`: each of these samples becomes a separate observed cluster; `two`: they are permuted.
      generator: generator to draw these samples.
    """
    observed = clusters.copy()
    astray = np.concatenate(
        [
            generator.permutation(members)[: round(noise * len(members))]
            for members in (np.flatnonzero(clusters == c) for c in np.unique(clusters))
        ]
    ).astype(np.int64)
    if directions == "one":
        observed[astray] = clusters.max() + 1 + np.arange(len(astray))
    else:
        observed[astray] = clusters[generator.permutation(astray)]
    return observed


def true_leakage(clusters: Indices, observed: Indices, min_size: int) -> tuple[float, float]:
    """Counts p_0 and purity: means over the samples of observed clusters with `min_size` samples or more.

    Args:
      clusters: true clusters [samples].
      observed: observed clusters [samples].
      min_size: smallest size of tested clusters.
    """
    _, observed_codes, sizes = np.unique(observed, return_inverse=True, return_counts=True)
    both = np.zeros((len(sizes), int(clusters.max()) + 1))
    np.add.at(both, (observed_codes, clusters), 1)
    tested = sizes[observed_codes] >= min_size
    own_size = sizes[observed_codes][tested]
    in_cluster = both[observed_codes, clusters][tested] - 1
    elsewhere = both.sum(axis=0)[clusters][tested] - 1 - in_cluster
    return float(np.mean(elsewhere / (len(clusters) - own_size))), float(
        np.mean(in_cluster / (own_size - 1))
    )


# --- The learner --------------------------------------------------------------------------------


class RidgeLearner:
    """Ridge regression on labels -1 and 1, fitted to many training sets at once.

    Training sets are represented by counts of each sample, so that sums of squares are one matrix product.
    """

    def __init__(self, world: ClusteredSamples, ridge: float):
        x = np.column_stack([np.ones(len(world.labels)), world.features])
        self._x, self._labels, self._ridge = x, world.labels, ridge
        self._upper = np.triu_indices(x.shape[1])
        squares = x[:, self._upper[0]] * x[:, self._upper[1]]
        self._columns = np.column_stack([squares, x * world.labels[:, None]])

    def fit(self, train: Indices) -> Floats:
        """Returns weights [draws, 1 + features], intercept first, for training sets [draws, n']."""
        draws, samples = len(train), len(self._labels)
        indices = train + samples * np.arange(draws)[:, None]
        counts = np.bincount(indices.ravel(), minlength=draws * samples).reshape(draws, samples)
        sums = counts.astype(np.float64) @ self._columns
        width = self._x.shape[1]
        normal = np.empty((draws, width, width))
        normal[:, self._upper[0], self._upper[1]] = sums[:, : len(self._upper[0])]
        normal[:, self._upper[1], self._upper[0]] = sums[:, : len(self._upper[0])]
        normal[:, np.arange(width), np.arange(width)] += self._ridge
        return np.linalg.solve(normal, sums[:, len(self._upper[0]) :, None])[..., 0]

    def errors(self, train: Indices, test: Indices) -> Floats:
        """Returns error rates [draws] on `test` [draws, tests] after training on `train` [draws, n']."""
        scores = np.einsum("dtw,dw->dt", self._x[test], self.fit(train))
        return np.mean((scores > 0) != (self._labels[test] > 0), axis=1)

    def errors_on(self, train: Indices, other: ClusteredSamples) -> float:
        """Returns the mean share of misclassified samples of another world."""
        x = np.column_stack([np.ones(len(other.labels)), other.features])
        scores = x @ self.fit(train).T  # [samples, draws]
        return float(np.mean((scores > 0) != (other.labels > 0)[:, None]))


# --- The estimators -----------------------------------------------------------------------------


def _one_world(parameters: Mapping[str, Any], repetition: int) -> list[dict[str, float]]:
    """Computes the true loss and the estimates of one world, with a row per noise."""
    world = make_world(parameters, parameters["num_clusters"], repetition, 0)
    fresh = make_world(parameters, parameters["num_new_clusters"], repetition, 1)
    learner = RidgeLearner(world, parameters["ridge"])
    truth = _truth(learner, world, fresh, parameters, repetition)
    shared = {
        "truth": truth,
        "k-fold": _k_fold(learner, world, parameters, repetition),
        "leave one true cluster out": _level_loss(
            learner, _design(world.clusters, parameters, repetition), 0
        ),
    }
    rows = []
    for noise in parameters["noises"]:
        astray = _generator(parameters["simulation_seed"], repetition, 2)
        observed = observe(world.clusters, noise, parameters["directions"], astray)
        row = {"noise": float(noise), "repetition": repetition} | shared
        rows.append(row | _b3_row(learner, world, observed, parameters, repetition))
    return rows


def _b3_row(
    learner: RidgeLearner,
    world: ClusteredSamples,
    observed: Indices,
    parameters: Mapping[str, Any],
    repetition: int,
) -> dict[str, float]:
    """Computes statistics of the observed clusters."""
    design = _design(observed, parameters, repetition)
    b = np.array([_level_loss(learner, design, level) for level in range(design.num_levels)])
    p_0, purity = true_leakage(world.clusters, observed, design.min_size)
    order, weight = parameters["trend_order"], parameters["trend_weight"]
    rules = Regularisation(trend_order=order, trend_weight=weight, upper=1.0)
    leakages = leakage_levels(p_0, design.injections, purity)
    solution = solve(design.num_train, leakages, b, rules)
    candidates = [value for value in _CANDIDATES if value < purity]
    purities = [purity] * len(candidates)
    searched = search(
        design.num_train, design.injections, b, candidates, purities, regularisation=rules
    )
    return {
        "p_0": p_0,
        "purity": purity,
        "leave one cluster out": float(b[0]),
        "B3, p_0 known": solution.e_0,
        "B3, p_0 searched": searched.e_0,
        "searched p_0": searched.p_0,
    }


def _design(groups: Indices, parameters: Mapping[str, Any], repetition: int) -> LeakageDesign:
    sampling = LeakageSampling(
        num_train=parameters["num_train"],
        num_draws=parameters["num_draws"],
        rng=parameters["rng"] + repetition,
    )
    return LeakageDesign(groups, sampling)


def _level_loss(learner: RidgeLearner, design: LeakageDesign, level: int) -> float:
    losses = []
    for start in range(0, design.num_draws, _CHUNK):
        drawn = design.draws(level, start, min(start + _CHUNK, design.num_draws))
        losses.append(learner.errors(drawn.train, drawn.test))
    return float(np.concatenate(losses).mean())


def _k_fold(
    learner: RidgeLearner, world: ClusteredSamples, parameters: Mapping[str, Any], repetition: int
) -> float:
    """Computes the k-fold estimate: folds ignore clusters, and n' samples are drawn from the other folds."""
    generator = _generator(parameters["simulation_seed"], repetition, 3)
    order = generator.permutation(len(world.labels))
    losses = []
    draws = -(-parameters["num_draws"] // parameters["num_folds"])
    for fold in np.array_split(order, parameters["num_folds"]):
        others = np.setdiff1d(order, fold)
        train = others[generator.integers(len(others), size=(draws, parameters["num_train"]))]
        losses.append(learner.errors(train, np.tile(fold, (draws, 1))).mean())
    return float(np.mean(losses))


def _truth(
    learner: RidgeLearner,
    world: ClusteredSamples,
    fresh: ClusteredSamples,
    parameters: Mapping[str, Any],
    repetition: int,
) -> float:
    """Computes the loss on new clusters after training on n' draws from all true clusters except one."""
    generator = _generator(parameters["simulation_seed"], repetition, 4)
    losses = []
    draws = -(-parameters["num_draws"] // parameters["num_clusters"])
    for cluster in np.unique(world.clusters):
        others = np.flatnonzero(world.clusters != cluster)
        train = others[generator.integers(len(others), size=(draws, parameters["num_train"]))]
        losses.append(learner.errors_on(train, fresh))
    return float(np.mean(losses))


def _generator(simulation_seed: int, *key: int) -> np.random.Generator:
    word = 1  # a leading 1, so that no key equals a stream of the draws
    for part in key:
        word = (word << 24) | part
    return np.random.Generator(np.random.Philox(key=[simulation_seed, word]))


# --- What is written ----------------------------------------------------------------------------


class Summary(NamedTuple):
    """Errors of an estimator at one noise.

    Attributes:
      mean: mean of the estimates.
      bias: mean of estimate - truth.
      bias_error: standard error of the bias over repetitions.
      root_mean_square: root mean square of estimate - truth.
    """

    mean: float
    bias: float
    bias_error: float
    root_mean_square: float


def summarise(rows: Sequence[Mapping[str, float]], noise: float, estimator: str) -> Summary:
    """Computes errors over the repetitions of one noise, each relative to the true loss of its world."""
    chosen = [row for row in rows if row["noise"] == noise]
    values = np.array([row[estimator] for row in chosen])
    errors = values - np.array([row["truth"] for row in chosen])
    return Summary(
        float(values.mean()),
        float(errors.mean()),
        float(errors.std(ddof=1) / np.sqrt(len(errors))),
        float(np.sqrt(np.mean(errors**2))),
    )


def _noises(rows: Sequence[Mapping[str, float]]) -> list[float]:
    return sorted({row["noise"] for row in rows})


def csv_table(rows: Sequence[Mapping[str, float]]) -> str:
    """Returns all unrounded numbers, one row per world and noise."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: (row["noise"], row["repetition"])))
    return stream.getvalue()


def markdown_table(rows: Sequence[Mapping[str, float]]) -> str:
    """Returns the bias with its standard error, and the root mean square error, per estimator and noise."""
    repetitions = len({row["repetition"] for row in rows})
    lines = [
        "| noise | p_0 | truth | "
        + " | ".join(f"{name}: bias (SE), RMSE" for name in ESTIMATORS)
        + " |",
        "|" + "---|" * (3 + len(ESTIMATORS)),
    ]
    for noise in _noises(rows):
        chosen = [row for row in rows if row["noise"] == noise]
        cells = [f"{noise:g}"] + [
            f"{np.mean([row[name] for row in chosen]):.3f}" for name in ("p_0", "truth")
        ]
        for name in ESTIMATORS:
            item = summarise(rows, noise, name)
            cells.append(f"{item.bias:+.4f} ({item.bias_error:.4f}), {item.root_mean_square:.4f}")
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Means over {repetitions} worlds; bias is estimate - truth of the same world."]
    return "\n".join(lines) + "\n"


def experiment_figure(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Draws loss (left) and bias (right) against noise, with bars of two standard errors."""
    noises = np.array(_noises(rows))
    step = 0.012 * max(float(np.ptp(noises)), 0.1)
    with canvas(9.2, 3.9, 2) as (figure, (left, right)):
        truth = [np.mean([row["truth"] for row in rows if row["noise"] == n]) for n in noises]
        left.plot(noises, truth, color="black", linewidth=2.4, label="true loss on new clusters")
        right.axhline(0, color="black", linewidth=2.4)
        perfect = [summarise(rows, noise, ESTIMATORS[-1]) for noise in noises]
        style = {"color": GREY, "linestyle": LINES[3]}
        left.plot(noises, [item.mean for item in perfect], label=ESTIMATORS[-1], **style)
        right.plot(noises, [item.bias for item in perfect], **style)
        for index, name in enumerate(DRAWN):
            items = [summarise(rows, noise, name) for noise in noises]
            style = {"color": COLOURS[index], "marker": MARKERS[index], "linestyle": LINES[index]}
            left.plot(noises, [item.mean for item in items], label=name, **style)
            right.errorbar(
                noises + step * (index - 1), [item.bias for item in items],
                yerr=[2 * item.bias_error for item in items], capsize=2, **style,
            )  # fmt: skip
        left.set_ylabel("share misclassified")
        right.set_ylabel("estimate - truth (bars: 2 SE)")
        for axes in (left, right):
            axes.set_xlabel("share of samples in a wrong observed cluster")
        left.set_title("Estimates")
        right.set_title("Bias")
        figure.legend(loc="outside lower left", ncols=3)
    return figure


if __name__ == "__main__":
    run_command(b3_experiment)
