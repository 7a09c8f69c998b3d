"""The page on calibration and its appendix: advice, tables and figures from `make calibrate`'s counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from multiberts.benchmarks.calibration_trials import (
    FAMILY_TESTS,
    LEVELS,
    TESTS,
    Outcome,
    monte_carlo_error,
)
from multiberts.benchmarks.crossed_model import (
    ANSWERS,
    CLUSTER_SIZE,
    NUM_EXAMPLES,
    NUM_REAL_EXAMPLES,
    NUM_TASKS,
    NUMBERS_OF_SEEDS,
    POSITIVES,
    REAL,
    Condition,
)
from multiberts.runs.figure_style import COLOURS, GREY, LINES, MARKERS, canvas
from multiberts.stats.formats import Cell
from multiberts.stats.presentation.table_writer import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Outcomes = Mapping[Condition, Outcome]

# The least coverage of the recommended interval, and the share of misses that must be flagged otherwise.
LEAST, FLAGGED = 0.93, 0.9
# The largest share of false alarms.
FALSE_ALARMS = 0.02
# Below this coverage a condition gets more trials.
CLOSE = 0.95
FEW_SEEDS = 10
LABELS = {
    "t": "t (recommended)",
    "percentile": "percentile",
    "unpaired_t": "t, unpaired",
    "seeds": "seeds alone",
    "miller": "Miller",
    "bayes": "Bayes",
    "rliable": "rliable",
    "mixed": "mixed model",
    "reml": "REML, Satterthwaite",
    "jackknife": "two-way jackknife",
}
OWN = tuple(LABELS)[:3]
NEIGHBOURS = tuple(LABELS)[3:]
_TEST_LABELS = {
    "t": "t",
    "percentile": "(k+1)/(B+1)",
    "published": "k/B",
    "sign_flip": "sign flip",
    "permutation": "permutation",
    "uncorrected": "uncorrected",
    "bonferroni": "Bonferroni",
    "holm": "Holm",
}


# --- What a condition shows -----------------------------------------------------------------------


def held(found: Outcome) -> str:
    """Judges a condition: `yes` where the recommended interval covers, `flag` where misses are flagged.

    `no?` where two Monte Carlo errors reach to what is wanted, else `no`.
    """
    share = found.share()
    if share >= LEAST:
        return "yes"
    if flagged_misses(found) >= FLAGGED:
        return "flag"
    error = monte_carlo_error(found.covered["t"], found.trials)
    return "no?" if share + 2 * error >= LEAST else "no"


def flagged_misses(found: Outcome) -> float:
    """Returns the share of misses of the recommended interval with a flag; NaN without misses."""
    misses = found.trials - found.covered["t"]
    return found.flagged_misses.get("any", 0) / misses if misses else math.nan


def _name(condition: Condition) -> str:
    seeds = f"{condition.num_seeds} seeds"
    return f"{condition.metric}, {condition.words}, {condition.design}, {seeds}"


def _of(outcomes: Outcomes, keep: Callable[[Condition], bool]) -> dict[Condition, Outcome]:
    return {
        condition: found
        for condition, found in outcomes.items()
        if condition.design != "family" and keep(condition)
    }


def cell_table(outcomes: Outcomes) -> Table:
    """Makes a row per condition: coverage, width, type I error and flags of the recommended interval."""
    columns = (
        "metric", "data", "design", "seeds", "trials", "coverage", "width", "type I", "data flag up",
        "any flag up", "any flag up where it misses", "holds",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for condition, found in outcomes.items():
        misses = flagged_misses(found)
        rows.append(
            [
                condition.metric,
                condition.words,
                condition.design,
                str(condition.num_seeds),
                str(found.trials),
                f"{found.share():.3f}",
                f"{found.length['t']:.3g}",
                f"{found.errs('t'):.3f}" if "t" in found.rejected else None,
                f"{found.flagged['data'] / found.trials:.3f}",
                f"{found.flagged['any'] / found.trials:.3f}",
                None if math.isnan(misses) else f"{misses:.2f}",
                held(found),
            ]
        )
    return Table(columns, rows)


def coverage_table(outcomes: Outcomes, names: Sequence[str], widths: bool = False) -> Table:
    """Makes a row per condition with the coverage of some intervals.

    Args:
      outcomes: the conditions.
      names: of the intervals.
      widths: whether to add the width over that of the recommended interval.
    """
    rows: list[list[Cell]] = []
    for condition, found in outcomes.items():
        cells: list[Cell] = []
        for name in names:
            if name not in found.covered:
                cells.append(None)
                continue
            text = f"{found.share(name):.3f}"
            if widths and name != "t":
                ratio = found.length[name] / found.length["t"]
                text += f" ({ratio:.2f})" if math.isfinite(ratio) else " (endless)"
            cells.append(text)
        rows.append(
            [condition.metric, condition.words, condition.design, str(condition.num_seeds), *cells]
        )
    return Table(("metric", "data", "design", "seeds", *(LABELS[n] for n in names)), rows)


def error_table(outcomes: Outcomes) -> Table:
    """Makes a row per condition with the two-sided type I error of each test at each level."""
    columns = [f"{_TEST_LABELS[test]} at {level}" for test in TESTS for level in LEVELS]
    rows: list[list[Cell]] = []
    for condition, found in outcomes.items():
        if not found.rejected:
            continue
        cells: list[Cell] = [
            None if test not in found.rejected else f"{found.errs(test, f'two-sided {level}'):.3f}"
            for test in TESTS
            for level in LEVELS
        ]
        rows.append(
            [condition.metric, condition.words, condition.design, str(condition.num_seeds), *cells]
        )
    return Table(("metric", "data", "design", "seeds", *columns), rows)


def family_table(outcomes: Outcomes) -> Table:
    """Makes a row per number of seeds with the chance that a family has any false rejection."""
    rows: list[list[Cell]] = [
        [
            str(condition.num_seeds),
            str(found.trials),
            *(f"{found.errs(test):.3f}" for test in FAMILY_TESTS),
            f"{found.share():.3f}",
        ]
        for condition, found in outcomes.items()
        if condition.design == "family"
    ]
    columns = (
        "seeds",
        "trials",
        *(_TEST_LABELS[test] for test in FAMILY_TESTS),
        "macro-average covers",
    )
    return Table(columns, rows)


def neighbour_summary(outcomes: Outcomes) -> Table:
    """Makes a row per interval over the conditions of 2 to 10 seeds where it can be had."""
    rows: list[list[Cell]] = []
    for name in ("t", *NEIGHBOURS):
        row: list[Cell] = [LABELS[name]]
        for ordinary in (True, False):
            found = [
                outcome
                for condition, outcome in outcomes.items()
                if _few(condition) and condition.ordinary == ordinary and name in outcome.covered
            ]
            shares = [outcome.share(name) for outcome in found]
            row += [
                str(len(found)),
                f"{np.mean(shares):.3f}",
                f"{min(shares):.3f}",
                f"{np.mean([share >= LEAST for share in shares]):.2f}",
                f"{np.median([o.length[name] / o.length['t'] for o in found]):.2f}",
            ]
        rows.append(row)
    head = (
        "conditions",
        "mean coverage",
        "lowest",
        f"share at {LEAST} or more",
        "median width / t",
    )
    return Table(("interval", *(f"{c}, {k}" for k in ("ordinary", "hard") for c in head)), rows)


def _few(condition: Condition) -> bool:
    """Returns whether neighbours are compared there."""
    return (
        condition.design != "family"
        and condition.metric in ("mean", "accuracy")
        and condition.num_seeds <= FEW_SEEDS
    )


def better_neighbours(outcomes: Outcomes) -> Table:
    """Lists where a neighbour covers at every number of seeds, and the t does not or is wider.

    Wider means that the neighbour's interval is a tenth narrower in the median over seeds.
    """
    kinds: dict[tuple[str, ...], list[Outcome]] = {}
    for condition, found in outcomes.items():
        if _few(condition):
            kind = condition.metric, condition.words, condition.design
            kinds.setdefault(kind, []).append(found)
    rows: list[list[Cell]] = []
    for key, items in kinds.items():
        for name in NEIGHBOURS:
            if name not in items[0].covered or min(o.share(name) for o in items) < LEAST:
                continue
            ratio = float(np.median([o.length[name] / o.length["t"] for o in items]))
            misses = min(o.share() for o in items) < LEAST
            if misses or ratio < 0.9:
                rows.append(
                    [
                        *key,
                        LABELS[name],
                        _range([o.share(name) for o in items]),
                        _range([o.share() for o in items]),
                        f"{ratio:.2f}",
                        f"{np.mean([o.shares[2] for o in items]):.2f}",
                    ]
                )
    columns = (
        "metric", "data", "design", "better", "its coverage", "coverage of t", "width / t",
        "residual's share",
    )  # fmt: skip
    return Table(columns, rows)


# --- The page -------------------------------------------------------------------------------------


def _range(shares: Sequence[float]) -> str:
    return f"{min(shares):.2f} to {max(shares):.2f}"


def _comparison_in_words(outcomes: Outcomes) -> str:
    """Sums up the comparison with the neighbours."""
    few = _of(outcomes, _few).values()
    lowest = {
        name: min(found.share(name) for found in few if name in found.covered)
        for name in ("t", *NEIGHBOURS)
    }
    others = ", ".join(f"{LABELS[name]} {share:.2f}" for name, share in lowest.items())
    return (
        "The t is wider than need be mostly where the residual carries the variance and "
        "for differences of accuracies near 1: with few seeds it cannot rule out that seeds or examples "
        "vary. Elsewhere the other interval is too short; lowest coverage "
        f"with 2 to 10 seeds: {others}. As nobody knows beforehand which kind of data they have, none is "
        "offered in the t's place."
    )


def _advice(outcomes: Outcomes) -> list[str]:
    """Writes the recommendations, with figures from the counts."""
    ordinary = _of(outcomes, lambda condition: condition.ordinary)
    covered = [found.share() >= LEAST for found in ordinary.values()]
    lowest = min(ordinary, key=lambda condition: ordinary[condition].share())
    errors = [found.errs("t") for found in ordinary.values() if "t" in found.rejected]

    def of(data: str, number: int, name: str = "t", design: str = "paired") -> str:
        metric = "accuracy" if data in ANSWERS else "mean"
        found = outcomes.get(Condition(metric, design, data, number))  # type: ignore[arg-type]
        return "?" if found is None else f"{found.share(name):.2f}"

    def over(data: str, name: str = "t", design: str = "paired") -> str:
        return "/".join(of(data, number, name, design) for number in (2, 3, 5, 10))

    return [
        f"- **Report `result.ci`.** On ordinary data it covers at least {LEAST} in {sum(covered)} of "
        f"{len(covered)} conditions, lowest {ordinary[lowest].share():.3f} ({_name(lowest)}). Its test errs "
        f"at .05 in {np.mean(errors):.3f} of trials on average, at most {max(errors):.3f}.",
        f"- **Do not report the percentile interval of few seeds.** Where seeds dominate it covers "
        f"{over('seeds', 'percentile')} with 2/3/5/10 seeds; the t covers {over('seeds')}.",
        "- **Two seeds are allowed.** The interval is then wide, as it must be: "
        f"{_width_ratio(outcomes, 2):.1f} times that of ten seeds where seeds dominate, and that of "
        f"three {_width_ratio(outcomes, 3):.1f} times.",
        "- **Near 0 or 1** (accuracy .993, 50 examples) the t of one procedure covers "
        f"{over('saturated', 't', 'single')}, the percentile interval "
        f"{over('saturated', 'percentile', 'single')} with 2/3/5/10 seeds.",
        "- **If training can fail**, look at the seeds. With one seed in ten at chance the t covers "
        f"{over('failed', 't', 'single')}, and where one side alone fails the difference covers "
        f"{over('failed_one_side')}. A failed seed is flagged in {_flagged_failures(outcomes)} of the "
        "misses; in nearly all others no seed happened to fail, so that nothing in the data shows it. "
        "Such a result is about seeds that train; report the rate of failures of all runs you made. "
        "Without the flagged seeds (`result.without_failed`) the difference covers that of seeds that "
        f"train in {over('failed_one_side', 'without_failed')}.",
        "- **Seeds of two kinds** (each mode half of the time) look alike by chance: the t covers "
        f"{over('bimodal', 't', 'single')}. Skewed seeds: {over('skewed')}; where seeds are nearly all that "
        f"varies, with a tail to one side, {over('purely_skewed', 't', 'single')} for one procedure and "
        f"{over('purely_skewed')} paired. What else was tried stands in "
        "[statistics.md](statistics.md#skewed-seeds).",
        "- **Standard errors over examples alone** (most evaluation programs) say nothing about new "
        f"seeds: Miller's covers {over('none', 'miller')} where seeds, examples and residual share the "
        f"variance, {over('seeds', 'miller')} where seeds dominate. Those over seeds alone say nothing "
        f"about new examples: {over('examples', 'seeds')} where examples dominate.",
        "- **Several tests:** Holm's correction (see below).",
    ]


def _flagged_failures(outcomes: Outcomes) -> str:
    failing = ("failed", "failed_one_side")
    found = [o for c, o in outcomes.items() if c.data in failing]
    misses = sum(o.trials - o.covered["t"] for o in found)
    return f"{sum(o.flagged_misses['failed seeds'] for o in found) / max(misses, 1):.0%}"


def _width_ratio(outcomes: Outcomes, number: int) -> float:
    lengths = [
        outcomes[condition].length["t"] if condition in outcomes else math.nan
        for condition in (Condition("mean", "paired", "seeds", n) for n in (number, 10))
    ]
    return lengths[0] / lengths[1]


def _promise(outcomes: Outcomes) -> list[str]:
    """Writes how often coverage is kept, with a row per kind of data where it is not."""
    shown = _of(outcomes, lambda _: True)
    verdicts = [held(found) for found in shown.values()]
    count = {word: verdicts.count(word) for word in ("yes", "flag", "no?", "no")}
    return [
        f"Wanted: in each condition the recommended interval covers at least {LEAST}, or a flag is up "
        f"in {FLAGGED:.0%} of the trials where it misses; on ordinary data flags are up in at most "
        f"{FALSE_ALARMS:.0%}. A flag is one of three warnings: seeds that failed, answers that are all "
        "alike, and a p smaller than the order of the seeds can show. The warning of an interval of one "
        f"point is newer than these trials and not counted. Of {len(shown)} "
        f"conditions {count['yes']} cover, in {count['flag']} the misses are flagged, {count['no?']} are "
        f"below by less than two Monte Carlo errors, and {count['no']} do neither. The kinds of "
        "data with such a condition, and the coverage with each number of seeds "
        "(bold: neither covered nor flagged):",
        "",
        _low_kinds(shown).markdown(),
        *_impossible(shown),
        _false_alarms(shown)[0]
        + " The [appendix](calibration_appendix.md#false-alarms) lists them.",
        "",
    ]


def _low_kinds(shown: Outcomes) -> Table:
    """Makes a row per kind of data with a condition that is neither covered nor flagged."""
    low = {(c.metric, c.words, c.design) for c, found in shown.items() if held(found)[:2] == "no"}
    kinds: dict[tuple[str, ...], dict[int, str]] = {}
    for condition, found in shown.items():
        kind = condition.metric, condition.words, condition.design
        if kind in low:
            mark = "**" if held(found)[:2] == "no" else ""
            cells = kinds.setdefault(kind, {})
            cells[condition.num_seeds] = f"{mark}{found.share():.3f}{mark}"
    columns = ("metric", "data", "design", *(f"{number} seeds" for number in NUMBERS_OF_SEEDS))
    return Table(columns, [[*k, *map(c.get, NUMBERS_OF_SEEDS)] for k, c in kinds.items()])


def _low_conditions(shown: Outcomes) -> str:
    """Lists the conditions that are neither covered nor flagged."""
    rows: list[list[Cell]] = [
        [
            _name(condition),
            f"{found.share():.3f} ± {monte_carlo_error(found.covered['t'], found.trials):.3f}",
            f"{flagged_misses(found):.2f}",
            _unseen(condition, found),
            "yes" if condition.ordinary else "no",
        ]
        for condition, found in shown.items()
        if held(found).startswith("no")
    ]
    columns = (
        "condition",
        "coverage",
        "flag up where it misses",
        "misses that show nothing",
        "ordinary",
    )
    return Table(columns, rows).markdown() if rows else "None.\n"


def _false_alarms(shown: Outcomes) -> tuple[str, list[str]]:
    """Says how often flags are up on ordinary data, and lists where that is too often."""
    alarms = {
        condition: found.flagged["data"] / found.trials
        for condition, found in shown.items()
        if condition.warned_falsely
    }
    excused = [
        found.flagged["data"] / found.trials
        for condition, found in shown.items()
        if condition.ordinary and not condition.warned_falsely
    ]
    loud = [c for c, share in alarms.items() if share > FALSE_ALARMS]
    words = (
        "False alarms: on ordinary data the flags that speak of the data (failed seeds, answers all "
        f"alike) are up in {100 * np.mean(list(alarms.values())):.2f} % of trials, in more than "
        f"{FALSE_ALARMS:.0%} in {len(loud)} of {len(alarms)} conditions. {len(excused)} others are not "
        "counted, correlations that vary mostly between seeds, some of which lie near 0 as failed ones do: "
        f"there they are up in at most {100 * max(excused, default=0.0):.1f} %."
    )
    return words, [f"- {_name(condition)}: {alarms[condition]:.3f}" for condition in loud]


def _floors(shown: Outcomes) -> str:
    """Says how often the flag of a p smaller than the order of the seeds can show is up."""
    floors = [
        (found.flagged["any"] - found.flagged["data"]) / found.trials
        for condition, found in shown.items()
        if condition.warned_falsely and condition.design != "single" and condition.num_seeds <= 5
    ]
    return (
        "The flag that p is smaller than the order of the seeds can show is not an alarm but a limit of the "
        "claim: it is up where a difference is significant, seeds carry it and they are few. Of two to "
        f"five seeds without a difference that is so in {100 * np.mean(floors):.1f} % of trials, which "
        "are trials where the interval misses."
    )


def _unseen(condition: Condition, found: Outcome) -> Cell:
    """Returns the share of misses without a failed seed; None where no seed can fail."""
    if condition.truth_of_trained is None:
        return None
    return f"{found.unseen_misses / (found.trials - found.covered['t']):.2f}"


def _impossible(shown: Outcomes) -> list[str]:
    """Says why no flag and no interval does what is wanted where seeds fail or are of two kinds."""
    failing = [
        found for condition, found in shown.items() if condition.truth_of_trained is not None
    ]
    misses = sum(found.trials - found.covered["t"] for found in failing)
    unseen = sum(found.unseen_misses for found in failing)
    flagged = sum(found.flagged_misses["failed seeds"] for found in failing)
    rate = ANSWERS["failed"].failing
    numbers = [number for number in NUMBERS_OF_SEEDS if number > 2]
    none = "/".join(f"{(1 - rate) ** number:.2f}" for number in numbers)
    alike = "/".join(f"{2.0 ** (1 - number):.2f}" for number in NUMBERS_OF_SEEDS[:3])
    return [
        f"Where seeds fail, no flag can do this. In {unseen} of all {misses} misses no seed of the trial "
        f"had failed. A flag is up in {flagged} of the other {misses - unseen}, all but those where every "
        "seed of an arm failed. Data without a failed seed look like those of seeds that cannot fail: a "
        "flag that is up in nine of ten of the former is up in nine of ten ordinary comparisons. "
        "Nor can an interval, unless it reaches from the score of seeds "
        f"that train to the mean with failures whatever the data: none of {'/'.join(map(str, numbers))} "
        f"seeds fails in {none} of trials. So the claim is about seeds that train; see above.",
        "",
        f"Seeds of two kinds are all of one kind in {alike} of trials with 2/3/5 seeds, and seeds of HANS "
        "lie close by chance likewise; most misses are such trials, which again look ordinary. More "
        "cautious degrees of freedom were tried, see [statistics.md](statistics.md#failed-runs).",
        "",
    ]


_RULE = (
    "Flags were counted with the rule for a failed run that was: it predicts one class alone and others "
    "do not; or its score is nearer to chance than to the median seed and three robust standard deviations "
    "from the median; or it is nineteen away. The rule that is (`stats.compare.failures.failed_seeds`) asks "
    "for a gap to the others, and is up less often: see [statistics.md](statistics.md#failed-runs)."
)


def _data_lines() -> list[str]:
    shares = ANSWERS["saturated"], ANSWERS["failed"], ANSWERS["asymmetric"]
    return [
        "- *normal*: scores with normal effects of seeds, examples and residual, of which one "
        "dominates, in the variance of the mean. *mostly seeds* is nine tenths seeds and one tenth "
        "examples. *pearson*: correlations that vary over seeds, examples or residual.",
        "- *skewed* (exponential), *heavy tailed* (t with 3 degrees of freedom), *bimodal* (seeds of two "
        "kinds, half of each): effects of seeds and examples, six tenths seeds and three tenths "
        "examples. In a paired comparison the differences themselves are so.",
        "- *binary*: answers right or wrong, accuracy .8, seeds with a standard deviation of about .02; "
        "*wide seeds*: of about .08. *clustered*: groups of "
        f"{CLUSTER_SIZE} examples that share most of their difficulty. *unbalanced*: seeds with 1 to 5 "
        "runs. *rare class*: F1 with one positive example in five.",
        "*Common seeds*: two sides whose seeds' scores vary widely and together (accuracy .78, ten "
        "elevenths of the seeds' variance in common). *5,000 examples*: otherwise as binary. "
        "*Unlabelled*: zeros and ones as scores without labels, accuracy .95. *6, 10, 20 positives* of 200 "
        "examples, nine in ten of them found, and one in a hundred of the others called positive.",
        "- *Ordinary* data are *normal*, *binary*, *clustered*, *unbalanced*, *rare class*, *common seeds*, "
        "*5,000 examples*, *unlabelled*, *positives* and *mnli*, with every metric and design.",
        "- *purely skewed*: 99 of 100 parts of the variance come from seeds with exponential effects.",
        f"- *saturated*: accuracy {shares[0].accuracy} with {shares[0].num_examples} examples. *failed*: "
        f"accuracy {shares[1].accuracy} with {shares[1].num_examples} examples, where one seed in ten "
        "always answers the same; *failed one side*: of the experiment alone. "
        f"*asymmetric*: the base's accuracy is {shares[2].accuracy + shares[2].lead:.3f}, the "
        f"experiment's {shares[2].accuracy}.",
        f"- *{REAL[0]}*, *{REAL[1]}*: real answers of ten fine-tuning seeds of BERT (MNLI; HANS with "
        "lexical overlap, where the answer is not entailment; Zhou et al. 2020), drawn again with "
        f"replacement, {NUM_REAL_EXAMPLES} examples at a time; truth is the mean of all. On HANS some "
        "seeds are near chance, so that it does not count as ordinary.",
    ]


_MADE = "<!-- Made by `make calibrate` from calibration.jsonl; do not edit. -->"


def page(outcomes: Outcomes) -> str:
    """Writes the page in Markdown, from nothing but the counts."""
    shown = _of(outcomes, lambda _: True)
    trials = [found.trials for found in shown.values()]
    error = monte_carlo_error(round(0.95 * min(trials)), min(trials))
    lines = [
        "# Calibration of intervals and tests",
        "",
        _MADE,
        "",
        "How far can a 95 % interval be trusted when there are few seeds? Simulated data with known "
        f"truth, and real answers drawn again. {min(trials)} to {max(trials)} trials per condition "
        f"(more where coverage seemed low, most where chance could decide whether it is), so that a share "
        "near .95 has a standard error of "
        f"{error:.3f} or less. Bootstrap intervals and all tests but the t are counted in "
        f"{min(o.bootstrapped for o in shown.values())} of the trials (standard error .022). "
        f"{NUM_EXAMPLES} examples unless said otherwise. The [appendix](calibration_appendix.md) describes "
        "[the data](calibration_appendix.md#the-data) and has the table of every condition. "
        "`make calibrate DATA=folder` repeats it, real answers included.",
        "",
        "## Recommendations",
        "",
        *_advice(outcomes),
        "",
        "![Coverage of the recommended interval by kind of data](calibration_recommended.png)",
        "",
        "## Coverage by kind of data",
        "",
        *_promise(outcomes),
        "![Coverage of the library's intervals against the number of seeds](calibration_intervals.png)",
        "",
        "## Intervals of other programs",
        "",
        "On the same data, with 2 to 10 seeds; the [appendix](calibration_appendix.md#other-programs) says "
        "which program prints which interval.",
        "",
        neighbour_summary(outcomes).markdown(),
        _comparison_in_words(outcomes),
        "",
        "## Several tests at once",
        "",
        f"The chance that a family of {NUM_TASKS} true hypotheses, whose tasks share their seeds, has "
        "any rejection at .05:",
        "",
        family_table(outcomes).markdown(),
        "![Type I error of the tests](calibration_errors.png)",
        "",
        "Sign flips and permutations ask about new seeds on these very examples. Where examples dominate "
        "they find a difference there that new examples would not have, and with few seeds the smallest "
        "p they can give lies above the level.",
        "",
    ]
    return "\n".join(lines)


def appendix(outcomes: Outcomes) -> str:
    """Writes the appendix in Markdown: data, rules, and a row per condition in every table."""
    shown = _of(outcomes, lambda _: True)
    few = _of(outcomes, _few)
    real = _of(outcomes, lambda condition: condition.data in REAL)
    alarms, loud = _false_alarms(shown)
    lines = [
        "# Calibration: appendix",
        "",
        _MADE,
        "",
        "The conditions that [Calibration](calibration.md) sums up.",
        "",
        "## The data",
        "",
        *_data_lines(),
        "",
        "## Conditions with too little coverage",
        "",
        _low_conditions(shown),
        "## False alarms",
        "",
        alarms,
        *([""] if loud else []),
        *loud,
        "",
        _floors(shown),
        "",
        _RULE,
        "",
        "## Other programs",
        "",
        "*Seeds alone*: Student's t "
        "over the scores of seeds. *Miller*: standard errors over examples, clustered and paired (Miller "
        "2024), as in lm-evaluation-harness, evalci and evaluatellm. *Bayes*: Beta and Dirichlet "
        "posteriors (Bowyer et al. 2025, bayes_evals) of all answers as one sample; its own weighting of "
        "10,000 prior draws keeps few where answers are many. *rliable*: its stratified bootstrap over "
        "seeds, written here in a few lines. *Mixed model*: crossed effects by REML with "
        "normal quantiles, as statsmodels' MixedLM; *REML, Satterthwaite*: the same with Student's t, as R's "
        "lmerTest. *Two-way jackknife*: leaving out seeds, examples and cells (MacKinnon, Nielsen & Webb "
        "2024). Type I error of these intervals is one minus coverage "
        "in designs without a difference. [rivals.md](rivals.md) has those that take long, a crossed "
        "logistic model, evalstats and Kenward-Roger, and the narrowest interval that there can be.",
        "",
        "![Coverage of other programs' intervals](calibration_neighbours.png)",
        "",
        f"Where another interval is better: it covers {LEAST} or more at each of 2, 3, 5 and 10 seeds, and "
        "the t does not, or is wider (by a tenth or more in the median):",
        "",
        better_neighbours(outcomes).markdown(),
    ]
    if real:
        lines += [
            "On real answers, coverage (and width over that of the t):",
            "",
            coverage_table(real, ("t", *NEIGHBOURS), widths=True).markdown(),
        ]
    lines += [
        "## Each condition",
        "",
        "*Holds*: `yes`, the recommended interval covers; `flag`, a flag is up where it misses; `no?`, "
        "below by less than two Monte Carlo errors; `no`.",
        "",
        cell_table(shown).markdown(),
        "## Coverage of the library's intervals",
        "",
        coverage_table(shown, OWN).markdown(),
        "## Coverage of other programs, and width over that of the t",
        "",
        coverage_table(few, ("t", *NEIGHBOURS), widths=True).markdown(),
        "## Type I error, two-sided",
        "",
        error_table(shown).markdown().rstrip("\n"),
        "",
    ]
    return "\n".join(lines)


# --- Figures --------------------------------------------------------------------------------------


def figures(outcomes: Outcomes) -> dict[str, Figure]:
    """Draws the figures of the page, by file name."""
    return {
        "calibration_recommended": recommended_figure(outcomes),
        "calibration_intervals": intervals_figure(outcomes),
        "calibration_neighbours": neighbours_figure(outcomes),
        "calibration_errors": errors_figure(outcomes),
    }


def recommended_figure(outcomes: Outcomes) -> Figure:
    """Draws the coverage of the recommended interval: a row per kind of data, a panel per design."""
    designs = ("single", "paired", "unpaired")
    shown = _of(outcomes, lambda _: True)
    kinds = list(dict.fromkeys((c.metric, c.data, c.words) for c in shown))
    with canvas(7.0, 0.27 * len(kinds) + 1.3, 3, sharey=True, sharex=True) as (figure, panels):
        for axes, design in zip(panels, designs, strict=True):
            _mark_target(axes, "x")
            for index, number in enumerate(NUMBERS_OF_SEEDS):
                points = [
                    (shown[c].share(), row + 0.12 * (index - 2))
                    for row, (metric, data, _) in enumerate(kinds)
                    if (c := Condition(metric, design, data, number)) in shown  # type: ignore[arg-type]
                ]
                axes.plot(
                    [x for x, _ in points], [y for _, y in points], linestyle="none",
                    marker=MARKERS[index], color=COLOURS[index], markersize=5, alpha=0.9,
                    label=f"{number} seeds",
                )  # fmt: skip
            axes.set_title(design)
            axes.set_xlabel("coverage")
            axes.hlines(range(len(kinds)), 0, 1, color=GREY, linewidth=0.3, zorder=0)
        lowest = min((found.share() for found in shown.values()), default=0.8)
        panels[0].set_xlim(min(0.78, lowest - 0.03), 1.015)
        panels[0].set_yticks(
            range(len(kinds)),
            [
                words + f" ({metric})" * (metric == "pearson" or data in POSITIVES)
                for metric, data, words in kinds
            ],
        )
        panels[0].invert_yaxis()
        figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


_PANELS: tuple[tuple[str, str, str, str], ...] = (
    ("mean", "paired", "seeds", "Seeds dominate"),
    ("mean", "paired", "none", "Shares equal"),
    ("mean", "paired", "skewed", "Skewed"),
    ("accuracy", "single", "clustered", "Clustered answers"),
    ("accuracy", "single", "saturated", "Accuracy .993"),
    ("accuracy", "single", "failed", "One seed in ten fails"),
)


def intervals_figure(outcomes: Outcomes) -> Figure:
    """Draws coverage against the number of seeds, a line per interval of the library."""
    return _lines(outcomes, OWN[:-1], NUMBERS_OF_SEEDS, 0.4)


def neighbours_figure(outcomes: Outcomes) -> Figure:
    """Draws the same of the recommended interval and the neighbours', up to ten seeds."""
    few = [number for number in NUMBERS_OF_SEEDS if number <= FEW_SEEDS]
    shown = [name for name in NEIGHBOURS if name != "mixed"]  # reml is the same with Student's t
    return _lines(outcomes, ("t", *shown), few, 0.0)


def _lines(
    outcomes: Outcomes, names: Sequence[str], numbers: Sequence[int], lowest: float
) -> Figure:
    with canvas(6.4, 7.2, 2, 3, sharex=True, sharey=True) as (figure, panels):
        for axes, (metric, design, data, title) in zip(panels.flat, _PANELS, strict=True):
            _mark_target(axes, "y")
            for index, name in enumerate(names):
                points = [
                    (place, outcomes[c].share(name))
                    for place, number in enumerate(numbers)
                    if (c := Condition(metric, design, data, number)) in outcomes  # type: ignore[arg-type]
                    and name in outcomes[c].covered
                ]
                axes.plot(
                    [x for x, _ in points], [y for _, y in points], label=LABELS[name],
                    color=COLOURS[index], marker=MARKERS[index], linestyle=LINES[index],
                    linewidth=1.4, markersize=4,
                )  # fmt: skip
            axes.set_title(f"{title} ({design})", fontsize=10)
            axes.set_ylim(lowest, 1.01)
        for axes in panels[-1]:
            axes.set_xticks(range(len(numbers)), [str(number) for number in numbers])
            axes.set_xlabel("seeds")
        for row in panels:
            row[0].set_ylabel("coverage")
        handles = dict(
            pair
            for axes in panels.flat
            for pair in zip(*reversed(axes.get_legend_handles_labels()), strict=True)
        )
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def errors_figure(outcomes: Outcomes) -> Figure:
    """Draws the two-sided type I error at .05 against the number of seeds, a line per test."""
    panels_of: tuple[tuple[str, str, str, Sequence[str]], ...] = (
        ("paired", "seeds", "Seeds dominate (paired)", TESTS),
        ("paired", "none", "Shares equal (paired)", TESTS),
        ("unpaired", "seeds", "Seeds dominate (unpaired)", TESTS),
        ("family", "none", f"Any of {NUM_TASKS} tasks", FAMILY_TESTS),
    )
    with canvas(6.4, 5.8, 2, 2, sharex=True) as (figure, panels):
        for axes, (design, data, title, tests) in zip(panels.flat, panels_of, strict=True):
            axes.axhline(0.05, color=GREY, linewidth=0.8)
            for index, test in enumerate(tests):
                points = [
                    (place, outcomes[c].errs(test))
                    for place, number in enumerate(NUMBERS_OF_SEEDS)
                    if (c := Condition("mean", design, data, number)) in outcomes  # type: ignore[arg-type]
                    and test in outcomes[c].rejected
                ]
                if points:
                    axes.plot(
                        [x for x, _ in points], [y for _, y in points], label=_TEST_LABELS[test],
                        color=COLOURS[index], marker=MARKERS[index], linestyle=LINES[index],
                        linewidth=1.4, markersize=4,
                    )  # fmt: skip
            axes.set_title(title, fontsize=10)
            axes.set_ylim(0, None)
            axes.set_xticks(range(len(NUMBERS_OF_SEEDS)), [str(n) for n in NUMBERS_OF_SEEDS])
            if axes.lines[1:]:
                axes.legend(fontsize=8)
        for axes in panels[-1]:
            axes.set_xlabel("seeds")
        for row in panels:
            row[0].set_ylabel("type I error at .05")
    return figure


def _mark_target(axes: Axes, side: str) -> None:
    """Marks the nominal level, and what is wanted at least."""
    line = axes.axvline if side == "x" else axes.axhline
    line(0.95, color=GREY, linewidth=0.8)
    line(LEAST, color=GREY, linewidth=0.8, linestyle=":")
