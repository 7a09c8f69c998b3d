"""Results of readers: rows with columns by role, and arms as tables of runs by examples."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.errors import UserError, counted, listed

if TYPE_CHECKING:
    import pandas
    import xarray

# Sources of seeds, arms and examples other than columns.
BY_COLUMNS = "numbers in the names of columns"
ARM_COLUMNS = "names of columns"
POSITION, BY_NAME = "order of rows", "names of files"
NUMBERED = "numbers in the names of files"  # such as run1.csv, without the word "seed"
BY_TIME, BY_MODEL = "order of evaluations in time", "models and folders of the logs"
ONE_SCORE, ONE_RUN = "one score per run", "one run, as no column names seeds"
UNNAMED = (POSITION, NUMBERED)  # seeds without numbers, paired by their order
# Usual names of seeds, and of runs that may be seeds.
SEED_NAMES = (
    "pretrain_seed", "seed", "model_seed", "random_seed", "training_seed", "rng_seed", "init_seed",
    "trial", "replicate",
)  # fmt: skip
RUN_NAMES = ("finetune_seed", "run", "repeat")
# Usual column names by role, in lower case; the first name in a table is used.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "arm": ("arm", "procedure", "model", "system", "condition", "method", "group"),
    "seed": (*SEED_NAMES, "seed_id"),
    "run": ("finetune_seed", "run", "repeat"),
    "example": (
        "example_id", "example", "doc_id", "sample_id", "question_id", "instance_id", "guid", "id",
        "idx", "index", "row_id", "item",
    ),
    "prediction": (
        "prediction", "predictions", "predicted", "pred", "y_pred", "answer", "output",
        "predicted_label", "pred_label", "predicted_class", "prediction_text", "model_output", "hyp",
        "y_hat",
    ),
    "score": (
        "score", "correct", "is_correct", "acc", "accuracy", "exact_match", "em", "f1", "right",
        "loss",
    ),
    "label": (
        "label", "labels", "target", "gold", "reference", "references", "y_true", "truth",
        "true_label", "gold_label", "ground_truth", "actual", "ref", "answers",
    ),
    "cluster": ("cluster", "template", "passage_id"),
}  # fmt: skip
# Names of scores that other programs use for labels.
SCORE_OR_LABEL = ("correct", "right", "acc")
# pandas' name of an index without a name.
INDEX = re.compile(r"Unnamed: \d+(\.\d+)?")
GAP = r"[ _.\-/=]"


def any_of(names: Iterable[str]) -> str:
    """Returns a pattern of names, longest first: `rng_seed` must not be the seed of an arm `rng`."""
    return "|".join(name.replace("_", f"{GAP}?") for name in sorted(names, key=len, reverse=True))


SEED_WORDS = any_of((*SEED_NAMES, *RUN_NAMES))
_NUMBER_OF_SEED = re.compile(rf"\s*(?:(?:{SEED_WORDS}){GAP}*)?(\d+)(?:\.0*)?\s*", re.IGNORECASE)
# Names of texts of examples, with pairs in order.
TEXT_NAMES = (
    "text", "sentence", "sentence1", "sentence2", "question", "premise", "hypothesis", "context",
    "prompt", "input", "text1", "text2", "text_a", "text_b", "sentence_1", "sentence_2", "passage", "query",
    "review", "tweet", "headline", "utterance", "doc", "document", "story",
)  # fmt: skip
# Other names of columns of tasks than "task", if they have several values.
TASK_NAMES = ("task_name", "benchmark", "dataset", "dataset_name", "subtask", "subset")
SPLITS = re.compile(
    r"(?i)(train(ing)?|dev(elopment)?|val(id(ation)?)?|test(ing)?|eval(uation)?|h[eo]ld[ _-]?out)([ _-]?set)?"
)
POOLED = "are pooled."
FOLDS_ARE_IN = 'as in docs/statistics.md, "Scores of folds"'
# Facts of an example that harnesses record, equal for all models.
FACT_NAMES = ("doc_hash", "target")


# Words in names of scores for which lower or higher is better; the last one decides: `rank_correlation`.
_LESS = {
    "loss", "losses", "error", "errors", "err", "wer", "cer", "ter", "mer", "eer", "nll", "mae", "mse",
    "rmse", "mape", "smape", "rmsle", "entropy", "perplexity", "ppl", "bits", "bpb", "bpc", "latency", "time",
    "seconds", "runtime", "duration", "cost", "costs", "price", "ece", "brier", "fid", "divergence",
    "distance", "rank", "fpr", "fnr", "false", "regret", "mistakes", "wrong", "incorrect",
}  # fmt: skip
_MORE = {
    "score", "accuracy", "acc", "correct", "right", "exact", "match", "em", "f1", "precision",
    "recall", "sensitivity", "specificity", "tpr", "tnr", "auc", "auroc", "auprc", "ap", "map", "mrr", "ndcg",
    "hits", "hit", "bleu", "sacrebleu", "rouge", "rougel", "rougelsum", "meteor", "chrf", "bertscore",
    "bleurt", "comet", "mauve", "cider", "reward", "rewards", "win", "wins", "winrate", "success", "solved",
    "pass", "passed", "iou", "dice", "jaccard", "r2", "correlation", "pearson", "pearsonr", "spearman",
    "spearmanr", "kendall", "kappa", "mcc", "matthews", "likelihood", "loglikelihood", "psnr", "ssim",
    "speedup", "throughput",
}  # fmt: skip
_TURNED = {"neg"}  # scikit-learn's `neg_log_loss`, and `negative_log_likelihood`
# A change or a spread of a score: a drop is worse where a gain is better.
_NEITHER = {
    "change", "delta", "diff", "difference", "drop", "gain", "gap", "improvement", "increase", "decrease",
    "reduction", "saved", "sd", "std", "stdev", "stderr", "variance",
}  # fmt: skip
_BESIDE = {"test", "val", "dev", "eval", "mean", "log", "rate", "word", "ms", "s", "seed", "run"}


def more_is_better(name: str, *, every_word: bool = False) -> bool | None:
    """Returns True if higher is better for a score of this name, False if lower is; None if unknown.

    Args:
      every_word: whether every word must be known, because the name may be that of a model.

    Examples:
      >>> [more_is_better(name) for name in ("eval/RMSE", "testLoss", "neg_log_loss", "rougeL", "tokens")]
      [False, False, True, True, None]
    """
    known = _LESS | _MORE | _TURNED
    words: list[str] = []
    for written in (name, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)):  # chrF; testLoss
        if known.isdisjoint(words):
            plain = written.lower().replace("reciprocal_rank", "mrr")
            plain = plain.replace("negative_log", "neg_log")
            words = [
                word if word in _MORE else word.rstrip("0123456789")
                for word in re.findall(r"[a-z]+\d*", plain)
            ]
    found = [word for word in words if word in _LESS | _MORE]
    found.sort(key=lambda word: word != "score")  # which decides alone only: `brier_score`
    if not (found and _NEITHER.isdisjoint(words)) or (every_word and {*words} - known - _BESIDE):
        return None
    return (found[-1] in _MORE) is _TURNED.isdisjoint(words)


def is_text(name: object) -> bool:
    """Returns whether a column name means texts or facts of examples."""
    return str(name).lower() in (*TEXT_NAMES, *FACT_NAMES)


def columns_of(frame: pandas.DataFrame) -> str:
    """Returns the names of a table's columns for a message."""
    return listed(repr(str(column)) for column in frame.columns)


def described(columns: Mapping[str, str]) -> str:
    """Returns the column of each role, for messages.

    Examples:
      >>> described({"prediction": "y_pred", "seed": BY_NAME})
      "prediction = 'y_pred', seed = names of files"
    """
    order = (
        "prediction", "score", "label", "example", "seed", "run", "arm", "task", "cluster", "by"
    )  # fmt: skip
    by = (POSITION, ONE_SCORE, ONE_RUN, BY_NAME, NUMBERED, BY_COLUMNS, BY_TIME, BY_MODEL)
    return ", ".join(
        f"{role} = {columns[role] if columns[role] in by else repr(columns[role])}"
        for role in order
        if role in columns
    )


@dataclass(frozen=True, kw_only=True)
class ReadAs:
    """Source of predictions: columns by role, and files.

    Attributes:
      columns: column of each role, or another source of seeds, arms and examples.
      identifying: columns whose values must be equal in another arm for the same examples.
      unused: unused columns with usual names of a role.
      files: files that were read; None for data in memory.
      logged_metric: a log's name of the metric; empty if the files name none.
      one_checkpoint: whether the seeds are fine-tuning seeds of one checkpoint.
      chosen: rows chosen by `--where`, or step and learning rate of the selected runs, in words.
      pooled: sentences on columns whose values are pooled, such as domains.
      possible_cluster: column of texts that several examples share, which may be clusters.
      more_is_better: whether higher or lower scores are better, as the user or a log says.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    identifying: Sequence[str] = ()
    unused: Sequence[str] = ()
    files: Sequence[str] | None = None
    task: str = ""
    logged_metric: str = ""
    one_checkpoint: bool = False
    chosen: str = ""
    pooled: str = ""
    possible_cluster: str = ""
    more_is_better: bool | None = None

    def attributes(self) -> dict[str, Any]:
        """Returns the fields that differ from the defaults, as attributes of a Dataset."""
        unset = vars(ReadAs())
        return {name: value for name, value in vars(self).items() if value != unset[name]}

    @classmethod
    def of(cls, attributes: Mapping[Any, Any]) -> ReadAs:
        """Returns the fields from attributes of a Dataset, ignoring attributes that users have set."""
        values = {name: attributes[name] for name in vars(cls()) if name in attributes}
        return cls(**values) if isinstance(values.get("columns", {}), Mapping) else cls()


@dataclass(frozen=True)
class Rows:
    """Predictions or scores, one row for each run and example.

    Attributes:
      roles: columns by role: `seed`, `prediction` or `score`, and `arm`, `run`, `task`, `example`, `label`,
        `cluster` and `by` if known; also columns that part the rows of a run, until these are accounted for.
      further: other columns under their names: texts, facts, and possible ids.
      read: source of the columns.
      possible_ids: further columns that are dropped unless they are ids.
      log: time, model and settings of a log; None for other files.
      distinguishing: columns that distinguish repeated rows of one run and example.
    """

    roles: pandas.DataFrame
    further: pandas.DataFrame
    read: ReadAs = field(default_factory=ReadAs)
    possible_ids: Sequence[str] = ()
    log: Mapping[str, str] | None = None
    distinguishing: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.roles)

    def with_role(self, role: str, values: Any, name: str) -> Rows:
        """Returns the rows with a column for a role, and its source."""
        read = replace(self.read, columns={**self.read.columns, role: name})
        return replace(self, roles=self.roles.assign(**{role: values}), read=read)

    def where(self, rows: Any) -> Rows:
        """Returns some of the rows."""
        return replace(
            self,
            roles=self.roles[rows].reset_index(drop=True),
            further=self.further[rows].reset_index(drop=True),
        )

    def frame(self) -> pandas.DataFrame:
        """Returns all columns; a role has precedence over a further column of the same name."""
        names = [name for name in self.further if name not in self.roles]
        return self.roles.assign(**{name: self.further[name] for name in names})

    @property
    def runs(self) -> NDArray[np.int64]:
        """Returns the number of each row's run, in order of first appearance."""
        keys = [name for name in ("arm", "seed", "run") if name in self.roles]
        if not keys:
            return np.zeros(len(self), np.int64)
        return np.asarray(self.roles.groupby(keys, sort=False, dropna=False).ngroup())


@dataclass(frozen=True, eq=False)
class ArmTable:
    """Predictions or scores of one arm, a row per run.

    Attributes:
      values: values [runs, examples], or [runs, examples, classes]; NaN (texts: None) if missing.
      kind: `prediction` or `score`; empty for plain arrays, which are the metric's input.
      keys: seed of each run, and run of the seed if there are several [runs].
      example_ids: ids [examples], or None if examples are known by position only.
      labels: labels [examples], or None.
      of_examples: further columns by name, such as texts or `cluster`, each [examples].
      lineage: ancestors of each run, see `stats.runs_table.Arm`; empty if unknown.
    """

    values: NDArray
    kind: str
    keys: Sequence[tuple[Hashable, ...]]
    example_ids: NDArray | None = None
    labels: Any = None
    of_examples: Mapping[str, NDArray] = field(default_factory=dict)
    lineage: Sequence[frozenset] = ()
    read: ReadAs = field(default_factory=ReadAs)

    def __post_init__(self) -> None:
        """Normalises seeds that are whole numbers, so that those of two arms can be paired."""
        numbers = {seed: number_of(seed) for seed in dict.fromkeys(key[0] for key in self.keys)}
        seeds: dict[Hashable, Hashable] = {}
        for seed, number in numbers.items():
            if seeds.setdefault(number, seed) is not seed:
                raise UserError(
                    f"found the seeds {seeds[number]!r} and {seed!r} in one arm, which are the same number; "
                    "write every seed in one way"
                )
        keys = [(numbers[key[0]], *key[1:]) for key in self.keys]
        object.__setattr__(self, "keys", keys)

    @property
    def seeds(self) -> list[Hashable]:
        """Returns the distinct seeds, in order."""
        return list(dict.fromkeys(key[0] for key in self.keys))

    def rename(self, names: Mapping[str, str]) -> ArmTable:
        """Returns the table with renamed columns of examples."""
        columns = {names.get(name, name): values for name, values in self.of_examples.items()}
        return replace(self, of_examples=columns)

    def dataset(self) -> xarray.Dataset:
        """Returns labelled arrays for the users of `stats.read`."""
        import xarray

        coordinates: dict[str, Any] = {"example_id": ("example", self.example_ids)}
        for level, name in enumerate(("pretrain_seed", "finetune_seed")[: len(self.keys[0])]):
            coordinates[name] = ("run", np.asarray([key[level] for key in self.keys]))
        for name, values in self.of_examples.items():
            coordinates[name] = ("example", values)
        variables: dict[str, Any] = {self.kind: (("run", "example"), self.values)}
        if self.labels is not None:
            variables["label"] = ("example", self.labels)
        return xarray.Dataset(variables, coordinates, self.read.attributes())


def number_of(seed: Hashable) -> Hashable:
    """Returns a seed as a whole number if it is written as one in any way, otherwise unchanged.

    Examples:
      >>> number_of("seed_3"), number_of("3"), number_of(3.0), number_of("A")
      (3, 3, 3, 'A')
    """
    if isinstance(seed, float) and seed.is_integer():
        return int(seed)
    match = _NUMBER_OF_SEED.fullmatch(seed) if isinstance(seed, str) else None
    return int(match[1]) if match else seed


# --- From rows -----------------------------------------------------------------------------------


def arms_of_rows(rows: Rows, where: str) -> dict[str, ArmTable]:
    """Returns the arms of settled rows by name ("" without a name); `where` names them in errors."""
    roles = rows.roles
    for name in ("arm", "seed", "run", "example"):
        if name in roles and roles[name].isna().any():
            raise UserError(
                f"{where}: column {name!r}: found {counted(int(roles[name].isna().sum()), 'row')} without a "
                "value; fill them in or leave these rows out"
            )
    arms = {"": rows}
    if "arm" in roles:
        arms = {str(name): rows.where(roles["arm"] == name) for name in roles["arm"].unique()}
    try:
        return {name: _table(arm_rows) for name, arm_rows in arms.items()}
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def line_of_repeats(rows: Rows, cells: Mapping[str, Any]) -> str:
    """Returns the error for two rows of one run and example, with advice to users."""
    if _is_rounded(cells["example"]):
        cure = (
            "such ids were rounded, as spreadsheets do: export them again as text, or name another column of "
            "ids with --example=COLUMN"
        )
    elif rows.distinguishing:
        name = rows.distinguishing[0]
        cure = (
            f"the column {name!r} distinguishes them: give --run={name} if it is of runs of a seed, or "
            f"--arm={name}"
        )
    else:
        cure = (
            "no other column distinguishes them, so ids are repeated: keep one row of copies, or give each "
            "example an id of its own"
        )
    return (
        f"found two rows of {', '.join(f'{key} {cell!r}' for key, cell in cells.items())}; {cure}"
    )


def _table(rows: Rows) -> ArmTable:
    import pandas

    roles = rows.roles
    keys = [name for name in ("seed", "run") if name in roles]
    runs = rows.runs
    codes, ids = pandas.factorize(roles["example"])
    cells = runs * len(ids) + codes
    if np.bincount(cells).max() > 1:
        repeated = int(np.argmax(pandas.Series(cells).duplicated()))
        cells_of_row = {key: roles[key].iloc[[repeated]].tolist()[0] for key in [*keys, "example"]}
        raise UserError(line_of_repeats(rows, cells_of_row))
    kind = "prediction" if "prediction" in roles else "score"
    values, shape = plain(roles[kind]), (int(runs.max()) + 1, len(ids))
    if kind == "prediction" and values.dtype.kind == "f" and np.isnan(values).all():
        values = values.astype(object)  # texts that are all empty
    if len(rows) == shape[0] * shape[1]:
        table = np.empty(shape, dtype=values.dtype)
    else:  # missing rows: None among texts, as NaN is an empty cell
        check_examples(rows)
        numeric = values.dtype.kind in "biuf"
        table = np.full(shape, np.nan) if numeric else np.full(shape, None, dtype=object)
    table.reshape(-1)[cells] = values
    of_runs = [np.asarray(roles[name])[_first_rows(runs)].tolist() for name in keys]
    labels, clusters, slices = (
        _of_examples(rows.read.columns["by"] if role == "by" else role, roles[role], codes, ids)
        if role in roles
        else None
        for role in ("label", "cluster", "by")
    )
    of_examples = {} if clusters is None else {"cluster": clusters}
    texts = [name for name in rows.further if name.lower() in TEXT_NAMES]
    for name in dict.fromkeys([*texts, *rows.read.identifying]):
        of_examples[name] = np.asarray(rows.further[name])[_first_rows(codes)].astype(object)
    if slices is not None:
        of_examples[rows.read.columns["by"]] = slices
    identifying = [*rows.read.identifying, *(["cluster"] if "cluster" in roles else [])]
    return ArmTable(
        table,
        kind,
        list(zip(*of_runs, strict=True)),
        np.asarray(ids),
        labels,
        of_examples,
        read=replace(rows.read, identifying=identifying),
    )


def check_examples(rows: Rows, where: str = "") -> None:
    """Refuses runs most of whose examples differ: they are parts of data, not seeds."""
    import pandas

    runs, codes = rows.runs, pandas.factorize(rows.roles["example"])[0]
    shape = int(runs.max()) + 1, int(codes.max()) + 1
    if len(rows) == shape[0] * shape[1] or rows.read.columns["example"] in (POSITION, ONE_SCORE):
        return
    step = -(-shape[0] // 50)  # some runs are enough for a median
    kept = runs % step == 0
    has = np.zeros((-(-shape[0] // step), shape[1]), np.float32)
    has[runs[kept] // step, codes[kept]] = 1
    first, second = np.triu_indices(len(has), 1)
    sizes = has.sum(axis=1)
    shares = (has @ has.T)[first, second] / np.minimum(sizes[first], sizes[second])
    if len(shares) and (share := np.median(shares)) < 1 / 2:
        part = f"only {100 * share:.0f} % of their examples" if share else "no example"
        raise UserError(
            f"{where}the runs (seeds: {rows.read.columns['seed']}) share {part}, expected the same in each; "
            "if ids continue from seed to seed, number the examples of each seed alike; write the parts of a "
            "run into one file, or under one seed; for folds and random splits compute one score each, "
            f"and test them {FOLDS_ARE_IN}"
        )


def _is_rounded(example: Hashable) -> bool:
    """Returns whether an id is a long number without its last digits, such as 2.64184E+17."""
    if isinstance(example, float):
        return abs(example) >= 1e11  # spreadsheets show 12 or more digits in this form
    return isinstance(example, str) and bool(re.fullmatch(r"\d(\.\d+)?E\+?\d+", example, re.I))


def _first_rows(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the first row of each code; codes are numbered by first appearance."""
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))


def _of_examples(name: str, column: pandas.Series, codes: NDArray, ids: Any) -> NDArray:
    values = plain(column)
    of_examples = np.empty(len(ids), dtype=values.dtype)
    of_examples[codes] = values
    different = np.asarray(of_examples[codes] != values) & ~np.asarray(column.isna())
    if different.any():
        example = np.asarray(ids).tolist()[codes[int(np.argmax(different))]]
        raise UserError(
            f"column {name!r}: found several values for the example {example!r}, expected "
            "the same in all its rows"
        )
    return of_examples


def plain(column: pandas.Series | pandas.DataFrame) -> NDArray:
    """Returns values with NumPy's types, NaN for missing numbers."""
    values = column.to_numpy()
    if values.dtype.kind == "O":
        kinds = [column.dtype] if column.ndim == 1 else list(column.dtypes)
        if all(hasattr(kind, "kind") and kind.kind in "biuf" for kind in kinds):
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values)


# --- From arrays ---------------------------------------------------------------------------------

# Names of arrays by role; the first available one is used.
_ARRAYS = {
    "prediction": ("predictions", "prediction", "preds", "pred", "y_pred"),
    "score": ("scores", "score"), "seed": ("seeds",),
    "label": ("labels", "label", "y_true", "targets", "target", "gold"),
    "cluster": ("clusters",), "example": ("example_ids", "ids"),
}  # fmt: skip


def table_of_arrays(
    arrays: Mapping[str, NDArray], where: str, names: Mapping[str, str | None] | None = None
) -> ArmTable:
    """Returns arrays as a table of runs.

    Args:
      arrays: `predictions` or `scores` [seeds, examples], or [examples] for one seed, and optionally
        `labels` [examples], `seeds`, `example_ids` and `clusters`.

    Examples:
      >>> table = table_of_arrays({"scores": np.array([[1, 0]]), "seeds": np.array([7])}, "base")
      >>> table.seeds, table.values.tolist(), table.example_ids.tolist()
      ([7], [[1, 0]], [0, 1])
    """
    user_names = {role: name for role, name in (names or {}).items() if name is not None}
    if user_names.get("by") in ("label", "length"):  # made from other columns
        del user_names["by"]
    for role, name in user_names.items():
        if name not in arrays or role in ("arm", "run"):
            raise UserError(
                f"{where}: found no array {name!r} for --{role}, only {listed(arrays)}; name one of "
                "these, or leave it out"
            )
    called = {
        role: next((name for name in usual if name in arrays), usual[0])
        for role, usual in _ARRAYS.items()
    } | user_names
    kind = "score" if "score" in user_names or called["prediction"] not in arrays else "prediction"
    values = np.atleast_2d(arrays.get(called[kind], np.empty((0, 0, 0))))
    if values.ndim != 2:
        shapes = listed(f"{name} {list(array.shape)}" for name, array in arrays.items())
        logits = "; of logits save argmax(-1) as predictions" if "logits" in arrays else ""
        raise UserError(
            f"{where}: found {shapes or 'no array'}, expected `predictions` or `scores` "
            f"[seeds, examples]{logits}; save each arm's under these names, in a file of its own"
        )
    if called["seed"] not in arrays and values.shape[0] > values.shape[1] > 1:
        raise UserError(
            f"{where}: {called[kind]} have the shape {list(values.shape)}, which would be "
            f"{values.shape[0]} seeds of {values.shape[1]} examples, expected [seeds, examples]; "
            "transpose them, or save the predicted class of each example"
        )
    columns = {kind: called[kind], "seed": POSITION, "example": POSITION}
    columns |= {
        role: name
        for role, name in called.items()
        if name in arrays and role not in ("prediction", "score")
    }
    by_role = {role: arrays[name] for role, name in columns.items() if name in arrays}
    for role, array in by_role.items():
        length = values.shape[0 if role == "seed" else 1]
        if role != kind and array.shape != (length,):
            raise UserError(
                f"{where}: {columns[role]} has the shape {list(array.shape)}, but {called[kind]} are "
                f"{list(values.shape)}, expected [{length}]; save them again"
            )
        if array.dtype.kind not in "biufU":
            raise UserError(
                f"{where}: {columns[role]} has the type {array.dtype}, expected numbers or texts; save them "
                "again"
            )
        if array.dtype.kind == "U" and role in ("seed", "example"):
            by_role[role] = np.char.strip(array)
    seeds = by_role.get("seed", np.arange(len(values))).tolist()
    if len({*seeds}) < len(seeds):
        twice = next(seed for index, seed in enumerate(seeds) if seed in seeds[:index])
        raise UserError(
            f"{where}: found two rows of seed {twice!r} in {columns['seed']}; number them"
        )
    of_examples = {columns.get("by", ""): by_role["by"]} if "by" in by_role else {}
    of_examples |= {"cluster": by_role["cluster"]} if "cluster" in by_role else {}
    return ArmTable(
        values,
        kind,
        [(seed,) for seed in seeds],
        by_role.get("example", np.arange(values.shape[1])),
        by_role.get("label"),
        of_examples,
        read=ReadAs(columns=columns, identifying=["cluster"] if "cluster" in by_role else []),
    )


def rows_of_table(table: ArmTable) -> Rows:
    """Returns a table of arrays as one row per prediction."""
    import pandas

    runs, examples = table.values.shape
    columns = {
        "seed": np.repeat([seed for (seed,) in table.keys], examples),
        table.kind: table.values.ravel(),
    }
    of_examples = {"label": table.labels, "cluster": table.of_examples.get("cluster")}
    if table.read.columns["example"] != POSITION:
        of_examples["example"] = table.example_ids
    columns |= {
        role: np.tile(values, runs) for role, values in of_examples.items() if values is not None
    }
    read = {role: name for role, name in table.read.columns.items() if role in columns}
    frame = pandas.DataFrame(columns)
    return Rows(frame, frame[[]], ReadAs(columns=read))
