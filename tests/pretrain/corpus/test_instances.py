"""Instances follow the recipe's facts, and the distribution of a plain token-by-token telling of it."""

import random

import numpy as np
import pytest
from scipy import stats

from multiberts.bert.randomness import generator
from multiberts.pretrain.corpus.instances import (
    INSTANCE_DTYPE,
    _truncate,
    cut_into_pairing_tasks,
    make_instances,
)
from multiberts.tests.pretrain.conftest import write_store

SEQUENCE_LENGTH = 64
MAX_TOKENS = SEQUENCE_LENGTH - 3


def store_of(directory, documents):
    """A store of documents given as lists of sentence lengths; token i of the text is i mod 2^16."""
    lengths = [length for document in documents for length in document]
    return write_store(directory, np.arange(sum(lengths)) % 2**16, lengths, map(len, documents))


def random_documents(number, document_seed=0):
    draw = random.Random(document_seed)
    return [
        [1 + int(draw.expovariate(1 / 12)) for _ in range(draw.randrange(1, 40))]
        for _ in range(number)
    ]


@pytest.fixture(scope="module")
def documents():
    return random_documents(200)


@pytest.fixture(scope="module")
def store(tmp_path_factory, documents):
    return store_of(tmp_path_factory.mktemp("store"), documents)


def make(store, **changes):
    parameters = {
        "sequence_length": SEQUENCE_LENGTH,
        "passes": range(10),
        "short_sequence_probability": 0.1,
        "instance_seed": 3,
    } | changes
    return np.concatenate(list(make_instances(store, **parameters)))


@pytest.fixture(scope="module")
def rows(store):
    return make(store)


def test_spans_fit_lie_in_one_document_and_follow_each_other_or_come_from_another(store, rows):
    assert rows.dtype == INSTANCE_DTYPE
    assert rows["a_length"].min() >= 1 <= rows["b_length"].min()
    assert (rows["a_length"] + rows["b_length"]).max() == MAX_TOKENS
    a_end, b_end = rows["a_start"] + rows["a_length"], rows["b_start"] + rows["b_length"]
    of_a, of_b = store.document_of(rows["a_start"]), store.document_of(rows["b_start"])
    assert np.array_equal(of_a, store.document_of(a_end - 1))
    assert np.array_equal(of_b, store.document_of(b_end - 1))
    follows = ~rows["is_random_next"]
    assert np.array_equal(of_a == of_b, follows)
    whole = follows & (rows["a_length"] + rows["b_length"] < MAX_TOKENS)
    assert whole.sum() > 100
    # Nothing was cut off: B starts where A ends. Where something was, the gap is what went.
    assert np.array_equal(a_end[whole], rows["b_start"][whole])
    assert np.all(a_end[follows] <= rows["b_start"][follows])


def test_share_of_random_next_exceeds_one_half_but_where_several_sentences_were_gathered(
    tmp_path, rows
):
    """Of sentences of 5 tokens in long documents only the last of a document is gathered alone."""
    assert rows["is_random_next"].mean() > 0.5 + 4 * 0.5 / np.sqrt(rows.size)
    rows = make(store_of(tmp_path, [[5] * 2000] * 4), short_sequence_probability=0.0)
    assert abs(rows["is_random_next"].mean() - 0.5) < 4 * 0.5 / np.sqrt(rows.size) + 1 / 200
    # No target was short, as none is asked for.
    assert (rows["a_length"] + rows["b_length"] == MAX_TOKENS).mean() > 0.95


def test_single_sentences_always_get_a_random_next(tmp_path):
    rows = make(store_of(tmp_path, [[4], [6], [5]]))
    assert rows.size == 30
    assert rows["is_random_next"].all()
    # A is the whole sentence, B too.
    assert set(rows["a_start"].tolist()) == {0, 4, 10}


def test_two_documents_are_enough(tmp_path):
    """Ten draws miss the other of two documents with probability 1/1024, and are then kept."""
    store = store_of(tmp_path, [[4] * 50, [4] * 50])
    rows = make(store, passes=range(200))
    rows = rows[rows["is_random_next"]]
    own = (store.document_of(rows["a_start"]) == store.document_of(rows["b_start"])).mean()
    sigma = np.sqrt(2.0**-10 / rows.size)
    assert abs(own - 2.0**-10) < 4 * sigma


def test_short_targets_are_drawn_once_per_document_and_pass(tmp_path):
    """With a probability of 1 every pass over a document has one uniform target from 2 to the longest."""
    store = store_of(tmp_path, [[1] * 1000, [1] * 1000])
    targets = []
    for rows in make_instances(
        store,
        sequence_length=10,
        passes=range(400),
        short_sequence_probability=1.0,
        instance_seed=1,
    ):
        # One-token sentences hit the target exactly, save where a document ends.
        lengths = rows["a_length"] + rows["b_length"]
        targets.append(int(lengths.max()))
        assert (lengths == targets[-1]).mean() > 0.85
    counts = np.bincount(targets, minlength=8)[2:]
    assert counts.sum() == 800 and counts.size == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def test_passes_documents_and_seeds_have_draws_of_their_own(store, rows):
    assert np.array_equal(rows, make(store))
    assert not np.array_equal(
        rows[: rows.size // 2], make(store, instance_seed=4)[: rows.size // 2]
    )
    one_pass = make(store, passes=range(1))
    assert np.array_equal(rows[: one_pass.size], one_pass)
    second = make(store, passes=range(2))[one_pass.size :]
    shared = min(second.size, one_pass.size)
    assert (second[:shared] == one_pass[:shared]).mean() < 0.2


def test_a_document_does_not_depend_on_those_before_it(tmp_path, documents):
    """Draws are addressed: another text in document 0 of equal size leaves document 1's cuts."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    changed = [documents[0][::-1], *documents[1:]]
    stores = store_of(first, documents), store_of(second, changed)
    keep = [list(make_instances(store, sequence_length=64, passes=range(1),
                                short_sequence_probability=0.1, instance_seed=0))
            for store in stores]  # fmt: skip
    columns = ["a_start", "a_length", "b_length", "is_random_next"]
    for one, other in zip(keep[0][1:], keep[1][1:], strict=True):
        from_first = one["is_random_next"] & (stores[0].document_of(one["b_start"]) == 0)
        for column in columns:
            agree = one[column] == other[column]
            assert np.all(agree | from_first)


@pytest.mark.parametrize(
    ("a", "b"), [(1, 90), (90, 1), (70, 40), (40, 70), (61, 61), (31, 31), (30, 31)]
)
def test_truncation_leaves_the_lengths_of_dropping_one_at_a_time(a, b):
    left, right = a, b
    while left + right > MAX_TOKENS:
        if left > right:
            left -= 1
        else:
            right -= 1
    a_span, b_span = _truncate((100, a), (500, b), MAX_TOKENS, generator("truncate", a, b))
    assert (a_span[1], b_span[1]) == (left, right)
    assert 100 <= a_span[0] <= 100 + a - left
    assert 500 <= b_span[0] <= 500 + b - right


def test_truncation_drops_from_the_front_with_even_odds():
    draws = generator("truncate")
    fronts = [_truncate((0, 100), (500, 1), 61, draws)[0][0] for _ in range(4000)]
    expected = 4000 * stats.binom.pmf(np.arange(41), 40, 0.5)
    counts = np.bincount(fronts, minlength=41)
    middle = slice(13, 28)
    assert counts[middle].sum() > 3900
    assert stats.chisquare(
        [*counts[middle], counts.sum() - counts[middle].sum()],
        [*expected[middle], 4000 - expected[middle].sum()],
    ).pvalue > 1e-4  # fmt: skip


def tell_plainly(documents, passes, draw):
    """The recipe's section 2 told token by token; (len A, len B, random) of every instance."""
    out = []
    for _ in range(passes):
        for own, document in enumerate(documents):
            target = draw.randint(2, MAX_TOKENS) if draw.random() < 0.1 else MAX_TOKENS
            waiting = list(document)
            while waiting:
                gathered = []
                while waiting and sum(gathered) < target:
                    gathered.append(waiting.pop(0))
                cut = draw.randint(1, len(gathered) - 1) if len(gathered) > 1 else 1
                a, rest = sum(gathered[:cut]), gathered[cut:]
                is_random = not rest or draw.random() < 0.5
                if is_random:
                    waiting = rest + waiting
                    other = own
                    while other == own:
                        other = draw.randrange(len(documents))
                    start = draw.randrange(len(documents[other]))
                    b = 0
                    for length in documents[other][start:]:
                        b += length
                        if b >= target - a:
                            break
                else:
                    b = sum(rest)
                while a + b > MAX_TOKENS:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                out.append((a, b, is_random))
    return np.array(out)


def test_distribution_is_that_of_the_recipe_told_plainly(store, documents, rows):
    told = tell_plainly(documents, 10, random.Random(5))
    ours = np.stack([rows["a_length"], rows["b_length"], rows["is_random_next"]], axis=1)
    # Numbers of instances: random over the passes, with a spread well under a percent.
    assert abs(len(told) / len(ours) - 1) < 0.02
    for column, edges in ((0, [1, 5, 10, 20, 31, 40, 62]), (1, [1, 5, 10, 20, 31, 40, 62])):
        table = [np.histogram(sample[:, column], edges)[0] for sample in (told, ours)]
        assert stats.chi2_contingency(table).pvalue > 1e-4, (column, table)
    table = [np.bincount(sample[:, 2].astype(int)) for sample in (told, ours)]
    assert stats.chi2_contingency(table).pvalue > 1e-4, table


def test_pairing_tasks_cover_every_document_in_every_pass(tmp_path, monkeypatch):
    lengths = np.random.default_rng(0).integers(1, 200, 300)
    store = write_store(tmp_path, np.zeros(lengths.sum()), lengths, [3] * 100)
    monkeypatch.setattr("multiberts.pretrain.corpus.instances.TOKENS_PER_TASK", 1000)
    tasks = cut_into_pairing_tasks(store, 3)
    assert len(tasks) > 60
    assert [task.number for task in tasks] == list(range(len(tasks)))
    covered = [(task.turn, document) for task in tasks for document in range(task.first, task.end)]
    assert covered == [(turn, document) for turn in range(3) for document in range(100)]
