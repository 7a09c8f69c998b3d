"""Batches follow the recipe's facts about order and masks, and depend on their address alone."""

import numpy as np
import pytest
from scipy import stats

from multiberts.bert.randomness import permuted_index
from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.batches.masking import Masking, _lowest, instance_order, pretraining_batch
from multiberts.pretrain.corpus.instances import INSTANCES, InstanceTable, make_instances
from multiberts.tests.pretrain.conftest import write_store

LENGTH = 64
VOCABULARY_SIZE = 1000


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    words = [f"w{number}" for number in range(VOCABULARY_SIZE - 5)]
    path.write_text("\n".join([*SPECIAL_TOKENS, *words]) + "\n")
    return Vocabulary.open(path)


def instances_of(store, folder):
    rows = make_instances(
        store,
        sequence_length=LENGTH,
        passes=range(2),
        short_sequence_probability=0.1,
        instance_seed=1,
    )
    np.save(folder / INSTANCES, np.concatenate(list(rows)))
    return InstanceTable(folder)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    draws = np.random.default_rng(0)
    lengths = draws.integers(1, 30, size=3000)
    # Ordinary tokens only, so that every special id in a batch was put there.
    tokens = draws.integers(5, VOCABULARY_SIZE, lengths.sum())
    store = write_store(folder, tokens, lengths, [30] * 100)
    return store, instances_of(store, folder)


MASKS = {
    "sequence_length": LENGTH, "max_predictions_per_sequence": 12, "masked_lm_probability": 0.15,
    "whole_word_masks": False,
}  # fmt: skip
GIVEN = {"data_seed": 5, "batch_size": 32, "fresh_masks": False, "instance_seed": 1}


def batch_with(store, table, tokenizer, **changes):
    """A batch, the fields of `Masking` given among its other parameters."""
    parameters = {"step": 0, **GIVEN, **changes}
    masking = Masking.of(MASKS | {name: v for name, v in parameters.items() if name in MASKS})
    others = {name: value for name, value in parameters.items() if name not in MASKS}
    return pretraining_batch(store, table, masking, vocabulary=tokenizer, **others)


@pytest.fixture(scope="module")
def batch_of(corpus, tokenizer):
    def make(step, **changes):
        return batch_with(*corpus, tokenizer=tokenizer, step=step, **changes)

    return make


@pytest.fixture(scope="module")
def large(batch_of):
    return batch_of(0, batch_size=4000)


def test_features_have_the_originals_names_shapes_and_types(batch_of):
    expected = {
        "input_ids": ((32, LENGTH), np.int32),
        "input_mask": ((32, LENGTH), np.int32),
        "segment_ids": ((32, LENGTH), np.int32),
        "masked_lm_positions": ((32, 12), np.int32),
        "masked_lm_ids": ((32, 12), np.int32),
        "masked_lm_weights": ((32, 12), np.float32),
        "next_sentence_labels": ((32,), np.int32),
    }
    assert {name: (a.shape, a.dtype.type) for name, a in batch_of(0).items()} == expected


def restored(batch):
    """The batch's ids with the masked ones put back."""
    ids = batch["input_ids"].copy()
    row, column = np.nonzero(batch["masked_lm_weights"])
    ids[row, batch["masked_lm_positions"][row, column]] = batch["masked_lm_ids"][row, column]
    return ids


def test_sequences_are_the_two_spans_with_their_special_tokens(corpus, tokenizer, batch_of):
    store, table = corpus
    batch = batch_of(7)
    ids = restored(batch)
    rows = table.rows[instance_order(7 * 32 + np.arange(32), len(table), 5)]
    for row, instance in enumerate(rows):
        a = store.tokens[instance["a_start"] :][: instance["a_length"]].tolist()
        b = store.tokens[instance["b_start"] :][: instance["b_length"]].tolist()
        sequence = [tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id]
        padding = [0] * (LENGTH - len(sequence))
        assert ids[row].tolist() == sequence + padding
        assert batch["input_mask"][row].tolist() == [1] * len(sequence) + padding
        segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert batch["segment_ids"][row].tolist() == segments + padding
    assert batch["next_sentence_labels"].tolist() == rows["is_random_next"].astype(int).tolist()


def test_number_of_predictions_is_the_originals(large):
    for length, weights in zip(large["input_mask"].sum(1), large["masked_lm_weights"], strict=True):
        count = min(12, max(1, round(int(length) * 0.15)))
        assert weights.tolist() == [1.0] * count + [0.0] * (12 - count)


def test_77_predictions_at_length_512_and_the_cap(corpus, tokenizer, tmp_path):
    """Recipe, section 2: 77 at 512, so a cap of 80 is slack."""
    store, _ = corpus
    rows = make_instances(
        store, sequence_length=512, passes=range(1), short_sequence_probability=0.0, instance_seed=1
    )
    rows = np.concatenate(list(rows))
    np.save(tmp_path / INSTANCES, rows[rows["a_length"] + rows["b_length"] == 509])
    sizes = {"batch_size": 8, "sequence_length": 512}
    for cap, expected in ((80, 77), (20, 20)):
        table = InstanceTable(tmp_path)
        batch = batch_with(store, table, tokenizer, **sizes, max_predictions_per_sequence=cap)
        assert batch["masked_lm_weights"].sum(1).tolist() == [expected] * 8


def test_positions_are_sorted_distinct_and_never_special(large, tokenizer):
    weights = large["masked_lm_weights"] > 0
    positions = large["masked_lm_positions"]
    steps = np.diff(positions, axis=1)
    assert np.all(steps[weights[:, 1:]] > 0)
    originals = np.take_along_axis(restored(large), positions, axis=1)
    assert not np.isin(originals[weights], [0, tokenizer.cls_id, tokenizer.sep_id]).any()
    assert np.all(positions[~weights] == 0)
    assert np.all(large["masked_lm_ids"][~weights] == 0)
    assert np.array_equal(large["masked_lm_ids"][weights], originals[weights])
    # [CLS] stands untouched, though padded positions point to it.
    assert np.all(large["input_ids"][:, 0] == tokenizer.cls_id)


def test_eighty_ten_ten(large, tokenizer):
    weights = large["masked_lm_weights"] > 0
    new = np.take_along_axis(large["input_ids"], large["masked_lm_positions"], axis=1)[weights]
    old = large["masked_lm_ids"][weights]
    total = new.size
    assert total > 30_000
    # A random id may be that of [MASK] or the old one.
    chance = 0.1 / VOCABULARY_SIZE
    for found, expected in (
        ((new == tokenizer.mask_id).mean(), 0.8 + chance),
        ((new == old).mean(), 0.1 + chance),
        (((new != old) & (new != tokenizer.mask_id)).mean(), 0.1 - 2 * chance),
    ):
        assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / total)


def test_random_ids_are_uniform_over_the_whole_vocabulary(batch_of, tokenizer):
    found = []
    for step in range(12):
        batch = batch_of(step, batch_size=3000, fresh_masks=True)
        weights = batch["masked_lm_weights"] > 0
        new = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], axis=1)[weights]
        old = batch["masked_lm_ids"][weights]
        found.append(new[(new != old) & (new != tokenizer.mask_id)])
    counts = np.bincount(np.concatenate(found), minlength=VOCABULARY_SIZE)
    assert counts.sum() > 20 * VOCABULARY_SIZE
    # Special ids are drawn as well; [MASK] cannot be told from a mask.
    assert np.all(counts[:4] > 0)
    assert stats.chisquare(np.delete(counts, tokenizer.mask_id)).pvalue > 1e-4


def test_every_candidate_is_chosen_alike(batch_of):
    """Over fresh masks, the chosen places of full sequences spread evenly over their candidates."""
    chosen, total = np.zeros(LENGTH), np.zeros(LENGTH)
    for step in range(10):
        batch = batch_of(step, batch_size=3000, fresh_masks=True)
        full = batch["input_mask"].all(1)
        weights = (batch["masked_lm_weights"] > 0) & full[:, None]
        chosen += np.bincount(batch["masked_lm_positions"][weights], minlength=LENGTH)
        special = np.isin(restored(batch), [2, 3])
        total += (full[:, None] & ~special).sum(0)
    rate = chosen.sum() / total.sum()
    inner = total > 0
    assert abs(rate - 10 / (LENGTH - 3)) < 1e-12  # round(64 * 0.15) = 10 of 61 candidates
    z = (chosen[inner] - total[inner] * rate) / np.sqrt(total[inner] * rate * (1 - rate))
    assert np.abs(z).max() < 4.5


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("fresh_masks", [False, True])
def test_a_batch_depends_on_its_address_alone(batch_of, fresh_masks):
    forward = [batch_of(step, fresh_masks=fresh_masks) for step in range(5)]
    backward = [batch_of(step, fresh_masks=fresh_masks) for step in reversed(range(5))][::-1]
    assert all(same(one, other) for one, other in zip(forward, backward, strict=True))
    assert not same(forward[0], forward[1])
    assert not same(forward[0], batch_of(0, fresh_masks=fresh_masks, data_seed=6))


def test_batches_of_another_size_hold_the_same_sequences(batch_of):
    """Rows are numbered through, so two batches of 32 are one of 64."""
    halves = [batch_of(step, batch_size=32, fresh_masks=True) for step in (6, 7)]
    whole = batch_of(3, batch_size=64, fresh_masks=True)
    for name in whole:
        assert np.array_equal(np.concatenate([half[name] for half in halves]), whole[name])


def test_an_epoch_meets_every_instance_once_in_an_order_of_its_own(corpus):
    _, table = corpus
    number = len(table)
    orders = instance_order(np.arange(3 * number), number, 5).reshape(3, number)
    for order in orders:
        assert np.array_equal(np.sort(order), np.arange(number))
    assert not np.array_equal(orders[0], orders[1])
    assert abs(stats.spearmanr(orders[0], orders[1]).statistic) < 4 / np.sqrt(number)
    assert not np.array_equal(orders[0], instance_order(np.arange(number), number, 6))


@pytest.mark.parametrize("number", [5, 3000, 100_000])
def test_the_order_does_not_depend_on_which_positions_are_asked_for(number):
    position = np.array([[0, 4095, 4096], [12_345_678, 3, 8191]])
    expected = [
        permuted_index(np.array(one % number), number, "order", 5, int(one // number))
        for one in position.ravel()
    ]
    assert instance_order(position, number, 5).ravel().tolist() == expected


def test_masks_repeat_with_their_instance_or_never(corpus, batch_of):
    _, table = corpus
    number = len(table)

    def by_instance(epoch, fresh_masks):
        batch = batch_of(epoch, batch_size=number, fresh_masks=fresh_masks)
        order = instance_order(epoch * number + np.arange(number), number, 5)
        return {name: array[np.argsort(order)] for name, array in batch.items()}

    assert same(by_instance(0, False), by_instance(1, False))
    first, second = by_instance(0, True), by_instance(1, True)
    assert np.array_equal(restored(first), restored(second))
    equal = (first["masked_lm_positions"] == second["masked_lm_positions"]).all(1)
    long = first["input_mask"].sum(1) > 40
    assert equal[long].mean() < 0.001
    # Masks of an instance hang on instance_seed, not on the order.
    assert not same(by_instance(0, False), batch_of(0, batch_size=number, instance_seed=2))


def test_more_predictions_than_tokens_are_padded(batch_of):
    batch = batch_of(0, max_predictions_per_sequence=100)
    assert batch["masked_lm_positions"].shape == (32, 100)
    assert batch["masked_lm_weights"].sum(1).max() == 10


def test_too_short_a_sequence_length_is_refused(batch_of):
    with pytest.raises(ValueError, match="more than sequence_length 32"):
        batch_of(0, sequence_length=32)


@pytest.fixture(scope="module")
def whole_words(tmp_path_factory):
    """A batch of words of 1 to 6 pieces: ids under 400 open a word, the others continue one."""
    folder = tmp_path_factory.mktemp("pieces")
    pieces = [*SPECIAL_TOKENS, *(f"{'##' * (n >= 400)}w{n}" for n in range(5, 1000))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    draws = np.random.default_rng(1)
    opens = draws.random(40_000) < 0.55
    tokens = np.where(
        opens, draws.integers(5, 400, opens.size), draws.integers(400, 1000, opens.size)
    )
    store = write_store(folder, tokens, [20] * 2000, [50] * 40)
    vocabulary = Vocabulary.open(folder / "vocab.txt")
    sizes = {"batch_size": 1500, "whole_word_masks": True}
    return batch_with(store, instances_of(store, folder), vocabulary, **sizes)


def words_of(ids, special):
    """The places of each word of a sequence, told plainly."""
    words = []
    for place, number in enumerate(ids):
        if number in special:
            words.append(None)
        elif number >= 400 and words[-1] is not None:
            words[-1].append(place)
        else:
            words.append([place])
    return [word for word in words if word]


def test_whole_words_are_masked_or_none_of_their_pieces(whole_words):
    batch = whole_words
    ids, weights = restored(batch), batch["masked_lm_weights"] > 0
    short = 0
    for row in range(len(ids)):
        positions = batch["masked_lm_positions"][row][weights[row]].tolist()
        assert positions == sorted(set(positions))
        length = int(batch["input_mask"][row].sum())
        words = words_of(ids[row][:length].tolist(), {0, 2, 3})
        masked = [word for word in words if set(word) & set(positions)]
        assert sorted(place for word in masked for place in word) == positions
        count = min(12, max(1, round(length * 0.15)))
        assert len(positions) <= count
        # Fewer only where no word that is left over would fit.
        left = [word for word in words if word not in masked]
        if len(positions) < count:
            short += 1
            assert all(len(word) > count - len(positions) for word in left)
    assert short < 0.1 * len(ids)
    # Each piece of a chosen word is drawn for itself: 80 % [MASK], as in the original.
    new = np.take_along_axis(batch["input_ids"], batch["masked_lm_positions"], axis=1)[weights]
    assert abs((new == 4).mean() - 0.8) < 4 * np.sqrt(0.16 / new.size)


def test_words_of_one_piece_are_masked_as_without_the_option(batch_of):
    assert same(batch_of(3), batch_of(3, whole_word_masks=True))


@pytest.mark.parametrize("kinds_of_halves", [1, 2, 2**32])
def test_the_lowest_scores_are_chosen_even_where_their_upper_halves_are_alike(kinds_of_halves):
    """Beside a full sort of the scores, ties in their random bits broken by place; of none, none."""
    draws = np.random.default_rng(0)
    shape = (200, 40)
    halves = draws.integers(2**32 - kinds_of_halves, 2**32, shape, dtype=np.uint64)
    bits = halves << np.uint64(32) | draws.integers(0, 4, shape, dtype=np.uint64) << np.uint64(30)
    candidates = draws.random(shape) < 0.8
    count = np.minimum(draws.integers(0, 20, shape[0]), candidates.sum(axis=1))
    found = _lowest(candidates, bits, count)
    for row in range(shape[0]):
        ranked = sorted(np.flatnonzero(candidates[row]), key=lambda place: bits[row, place] >> 16)
        assert np.flatnonzero(found[row]).tolist() == sorted(ranked[: count[row]])
