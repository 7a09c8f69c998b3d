"""Addressed randomness: same address, same bits; other address, independent bits."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from multiberts.bert import randomness
from multiberts.bert.randomness import below, generator, hash_bits, permuted_index, uniform


def test_mixing_is_that_of_splitmix64():
    """First outputs of the published SplitMix64 from state 0."""
    counter = np.array([1, 2, 3], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert randomness._mix(counter).tolist() == expected


def test_same_address_gives_the_same_stream_and_another_another():
    first = generator("masks", 3, 5).integers(2**63, size=4)
    assert np.array_equal(first, generator("masks", 3, 5).integers(2**63, size=4))
    for other in [
        ("masks", 5, 3),
        ("masks", 35),
        ("masks3", 5),
        ("masks", 3, 5, 0),
        ("masks", "3", 5),
    ]:
        assert not np.array_equal(first, generator(*other).integers(2**63, size=4)), other


def test_bits_do_not_depend_on_the_process():
    bits = (
        "[int(generator('a', 1).integers(2**63)), hash_bits('a', 7, np.arange(3)).tolist(), "
        "permuted_index(np.arange(9), 9, 'a', 2).tolist()]"
    )
    code = f"import numpy as np; from multiberts.bert.randomness import *; print({bits})"
    for hash_seed in ("1", "2"):
        path = os.pathsep.join(sys.path)
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert done == f"{eval(bits)}\n"


def test_vectorised_bits_are_those_of_single_addresses():
    rows, columns = np.arange(3)[:, None], np.arange(4)
    together = hash_bits("m", 11, rows, columns)
    assert together.shape == (3, 4)
    assert together.dtype == np.uint64
    for row in range(3):
        for column in range(4):
            assert together[row, column] == hash_bits("m", 11, row, column)
    assert hash_bits(-1) == hash_bits(2**64 - 1)
    assert hash_bits(np.array(-1)) == hash_bits(-1)


@pytest.mark.parametrize(
    "address",
    [lambda i: ("u", i), lambda i: (i, 1), lambda i: ("u", i % 64, i // 64), lambda i: (i, i)],
)
def test_bits_of_counters_are_uniform_and_uncorrelated(address):
    words = hash_bits(*address(np.arange(200_000)))
    assert len(np.unique(words)) == len(words)
    numbers = uniform(words)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert stats.kstest(numbers, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / np.sqrt(len(numbers))
    each_bit = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.all(np.abs(each_bit.mean(0) - 0.5) < 5 * 0.5 / np.sqrt(len(words)))


def test_neighbouring_seeds_and_labels_are_independent():
    counter = np.arange(100_000)
    streams = [hash_bits(*key, counter) for key in [("a", 0), ("a", 1), ("b", 0), (0, "a")]]
    correlations = np.corrcoef([uniform(stream) for stream in streams])
    assert np.abs(correlations - np.eye(4)).max() < 4.5 / np.sqrt(len(counter))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 100, 255, 256, 257, 10_007])
def test_permuted_index_is_a_bijection(size):
    for key in range(3):
        whole = permuted_index(np.arange(size), size, "p", key)
        assert np.array_equal(np.sort(whole), np.arange(size))
        # Without its neighbours a position goes to the same place.
        for index in (0, size // 2, size - 1):
            assert permuted_index(index, size, "p", key) == whole[index]


def test_permuted_index_takes_a_key_for_each_position():
    epoch = np.repeat([0, 1], 50)
    index = np.tile(np.arange(50), 2)
    together = permuted_index(index, 50, "p", epoch)
    assert np.array_equal(together[:50], permuted_index(np.arange(50), 50, "p", 0))
    assert np.array_equal(together[50:], permuted_index(np.arange(50), 50, "p", 1))
    assert not np.array_equal(together[:50], together[50:])


@pytest.mark.parametrize("size", [5, 100])
def test_each_place_of_a_permutation_is_uniform_over_keys(size):
    keys = np.arange(20_000)
    for place in (0, 1, size - 1):
        counts = np.bincount(permuted_index(place, size, "p", keys), minlength=size)
        assert stats.chisquare(counts).pvalue > 1e-4, place


def test_neighbours_in_a_permutation_are_unrelated():
    steps = np.diff(permuted_index(np.arange(10_000), 10_000, "p", 3))
    expected = np.diff(np.random.default_rng(0).permutation(10_000))
    assert stats.ks_2samp(steps, expected).pvalue > 1e-4


def test_positions_outside_and_other_types_are_refused():
    with pytest.raises(ValueError, match=r"range\(5\)"):
        permuted_index(np.array([5]), 5, "p")
    with pytest.raises(TypeError, match="float"):
        hash_bits(1.5)
    hash_bits(1)
    with pytest.raises(TypeError, match="float"):
        hash_bits(1.0)  # though it equals what was hashed before
    with pytest.raises(TypeError, match="float"):
        generator(1.5)


def test_below_is_the_product_of_the_upper_half_of_the_bits() -> None:
    """Lemire's method; the ends of the range come from the ends of the words."""
    words = np.array([0, 2**32 - 1, 2**32, 2**63, 2**64 - 1], np.uint64)
    expected = [[0, 0, 0, 5, 9], [0, 0, 1, 2**31, 2**32 - 1]]
    assert [below(words, bound).tolist() for bound in (10, 2**32)] == expected
    assert below(words, np.array([[10], [2**32]])).tolist() == expected
