"""A seeded permutation of row numbers in which each row's rank can be computed alone.

A Feistel network over the bits of the number: its halves in turn are XORed with a keyed hash of the other. Ranks
that fall outside the number of rows are sent through it again ("cycle walking") until they fall inside, which keeps
it a permutation.
"""

from __future__ import annotations

from typing import cast

import numpy as np

_ROUNDS = 8
_CHUNK = 1 << 14
"""Rows worked on at once, so that the intermediate arrays stay in the processor's cache."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)


def rank(rows: np.ndarray, count: int, seed: int, stream: int) -> np.ndarray:
    """The ranks, 0 to `count` - 1, of row numbers below `count`: int64, a permutation for each (seed, stream)."""
    bits = max(2, (max(count, 1) - 1).bit_length())
    keys = _keys(seed, stream)
    result = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), _CHUNK):
        ranks = _permuted(rows[start : start + _CHUNK].astype(np.uint64), bits, keys)
        while len(outside := np.flatnonzero(ranks >= np.uint64(count))):
            ranks[outside] = _permuted(ranks[outside], bits, keys)
        result[start : start + _CHUNK] = ranks
    return result


def mix(rows: np.ndarray, seed: int, stream: int) -> np.ndarray:
    """A random 64-bit number for each row number."""
    return _mixed(_mixed(rows.astype(np.uint64), _keys(seed, stream)[0]), _GOLDEN)


def _keys(seed: int, stream: int) -> np.ndarray:
    return np.random.SeedSequence([seed, stream]).generate_state(_ROUNDS, np.uint64)


def _permuted(values: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    low = bits // 2
    sizes = (np.uint64(low), np.uint64(bits - low))
    halves = [values & np.uint64((1 << low) - 1), values >> np.uint64(low)]
    for number, key in enumerate(keys):
        changed = number % 2
        # The upper bits of the hash are the best mixed.
        halves[changed] ^= _mixed(halves[1 - changed], key) >> (np.uint64(64) - sizes[changed])
    return cast(np.ndarray, halves[1] << np.uint64(low) | halves[0])


def _mixed(values: np.ndarray, key: np.uint64) -> np.ndarray:
    mixed = (values + key) * _GOLDEN
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIER
    return cast(np.ndarray, mixed)
