"""Addressed randomness: every random choice is a pure function of named seeds and a position.

These functions have no state. A caller names the draw (a label such as ``"dropout"``), its seeds and its
position (step, document, row), and gets the same bits on any machine, in any order, in any process. So a
resumed run draws the same numbers, and any past batch can be rebuilt.

Two tools:

* :func:`generator` gives a NumPy generator (Philox, Salmon et al., SC 2011) for thousands of draws from one
address.
* :func:`hash_bits` gives one 64-bit word for each of many addresses at once, for draws vectorised over
positions. It chains the 64-bit finaliser of SplitMix64 (Steele et al., OOPSLA
  2014), whose output passes the usual statistical batteries on counter input.
"""

import functools
import hashlib
import itertools
from typing import Any

import numpy as np

# The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# Even, to keep the order of the halves; four rounds are the minimum that looks random, eight are safe.
_FEISTEL_ROUNDS = 8

# Below this many bits the keyed rounds have too few states to reach most permutations.
_LEAST_FEISTEL_BITS = 4


def generator(*key: int | str) -> np.random.Generator:
    """Returns the generator of an address.

    Args:
      *key: parts of the address, labels (str) and integers (seeds, steps, positions), in a fixed order. ``1``
        and ``"1"`` are different parts, and the split in parts counts.

    Returns:
      A ``numpy.random.Generator`` over Philox, whose 128-bit key is a hash of the address.
      Generators of equal addresses have equal streams.
    """
    digest = _digest(key, size=16)
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def hash_bits(*parts: int | str | np.ndarray) -> np.ndarray:
    """Returns 64 random bits for each address, vectorised.

    Args:
      *parts: the address. Integers (taken modulo 2^64), labels (str), and integer arrays of any
        shape; arrays broadcast against each other.

    Returns:
      uint64 array of the broadcast shape (``[]`` when no part is an array). Each element depends
      only on its own address, so any slice of the arrays gives the same slice of the bits.
    """
    scalars: list[Any]
    scalars = list(itertools.takewhile(lambda part: not isinstance(part, np.ndarray), parts))
    return functools.reduce(_joined, parts[len(scalars) :], _bits_of_scalars(*scalars))


# Cached: many calls share the beginning of an address, and hashing it holds the GIL.
@functools.lru_cache(maxsize=4096, typed=True)
def _bits_of_scalars(*parts: Any) -> np.ndarray:
    return functools.reduce(_joined, parts, np.zeros((), np.uint64))


def _joined(bits: np.ndarray, part: int | str | np.ndarray) -> np.ndarray:
    # Each part is mixed before it is combined, so that small counters in two parts cannot cancel.
    return _mix((bits + _GOLDEN_ARRAY) ^ _mix(_as_words(part) + _GOLDEN_ARRAY))


def uniform(bits: np.ndarray) -> np.ndarray:
    """Turns random words into float64 numbers uniform on [0, 1), one of 2^53 steps each.

    Args:
      bits: uint64 array of any shape, as from :func:`hash_bits`.

    Returns:
      float64 array of the same shape.
    """
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(bits: np.ndarray, bound: int | np.ndarray) -> np.ndarray:
    """Turns random words into integers uniform on ``range(bound)``.

    Multiplies the upper 32 bits with the bound and keeps the upper half of the product (Lemire,
    2019); the bias is under ``bound / 2^32``.

    Args:
      bits: uint64 array of any shape.
      bound: positive integer(s) up to 2^32, broadcast against ``bits``.

    Returns:
      int64 array of the broadcast shape.
    """
    bound = np.asarray(bound).astype(np.uint64)
    returned: np.ndarray = (((bits >> np.uint64(32)) * bound) >> np.uint64(32)).astype(np.int64)
    return returned


def permuted_index(index: int | np.ndarray, size: int, *key: int | str | np.ndarray) -> np.ndarray:
    """Maps positions through a keyed permutation of ``range(size)``, without building the permutation.

    A Feistel network over the smallest power of two that holds ``size``, walked until the value
    falls inside (Black & Rogaway, CT-RSA 2002). So the cost per position does not depend on the epoch's
    length, and no table is stored.

    Args:
      index: positions, each in ``range(size)``; any shape.
      size: number of elements of the permutation, positive.
      *key: the address of the permutation; arrays broadcast against ``index`` and give each position a
        separate permutation (for rows of one batch in two epochs).

    Returns:
      int64 array of the broadcast shape: for one key, a bijection of ``range(size)``.
    """
    index = np.asarray(index, np.int64)
    if index.size and (index.min() < 0 or index.max() >= size):
        raise ValueError(f"positions must lie in range({size}), found {index.min()}..{index.max()}")
    rounds = [hash_bits("feistel", number, *key) for number in range(_FEISTEL_ROUNDS)]
    shape = np.broadcast_shapes(index.shape, rounds[0].shape)
    value = np.array(np.broadcast_to(index, shape).astype(np.uint64).ravel())  # [n]
    keys = np.stack([np.broadcast_to(words, shape).ravel() for words in rounds])  # [rounds, n]
    bits = max(_LEAST_FEISTEL_BITS, int(size - 1).bit_length())
    pending = np.arange(value.size)
    while pending.size:
        value[pending] = _feistel(value[pending], keys[:, pending], bits)
        pending = pending[value[pending] >= np.uint64(size)]
    return value.astype(np.int64).reshape(shape)


def _feistel(value: np.ndarray, keys: np.ndarray, bits: int) -> np.ndarray:
    """Passes once through the network over ``range(2**bits)``; value uint64 [n], keys uint64 [rounds, n]."""
    low_bits = np.uint64(bits // 2)
    high_bits = np.uint64(bits - bits // 2)
    low_mask = (np.uint64(1) << low_bits) - np.uint64(1)
    high_mask = (np.uint64(1) << high_bits) - np.uint64(1)
    low, high = value & low_mask, value >> low_bits
    for number, key in enumerate(keys):
        # Each half in turn is changed by a function of the other half, so every round is invertible.
        if number % 2 == 0:
            low = low ^ (_mix(high ^ key) & low_mask)
        else:
            high = high ^ (_mix(low ^ key) & high_mask)
    return (high << low_bits) | low


def _mix(words: np.ndarray) -> np.ndarray:
    """Applies the finaliser of SplitMix64, a bijection of 64-bit words."""
    words = (words ^ (words >> np.uint64(30))) * _MULTIPLIER_1
    words = (words ^ (words >> np.uint64(27))) * _MULTIPLIER_2
    returned: np.ndarray = words ^ (words >> np.uint64(31))
    return returned


# Arrays of one element, because NumPy wraps array arithmetic silently but warns on scalars.
_GOLDEN_ARRAY = np.array(_GOLDEN)
_MULTIPLIER_1 = np.array(0xBF58476D1CE4E5B9, np.uint64)
_MULTIPLIER_2 = np.array(0x94D049BB133111EB, np.uint64)


def _as_words(part: int | str | np.ndarray) -> np.ndarray:
    """Returns a part of an address as a uint64 array."""
    if isinstance(part, str):
        return np.array(int.from_bytes(_digest((part,), size=8), "little"), np.uint64)
    if isinstance(part, (int, np.integer)):
        return np.array(int(part) % 2**64, np.uint64)
    if isinstance(part, np.ndarray) and np.issubdtype(part.dtype, np.integer):
        return part.astype(np.uint64)
    raise TypeError(f"an address is made of integers and strings, found {type(part).__name__}")


def _digest(key: tuple[int | str, ...], size: int) -> bytes:
    """Hashes an address with the type and length of each part, so that parts cannot run together."""
    state = hashlib.blake2b(digest_size=size)
    for part in key:
        if isinstance(part, str):
            kind, text = b"s", part.encode()
        elif isinstance(part, (int, np.integer)):
            kind, text = b"i", str(int(part)).encode()
        else:
            raise TypeError(
                f"an address is made of integers and strings, found {type(part).__name__}"
            )
        state.update(kind + len(text).to_bytes(8, "little") + text)
    return state.digest()
