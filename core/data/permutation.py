"""A seeded permutation of row numbers in which each row's rank can be computed alone.

A Feistel network over pairs (left, right) of a grid a little larger than the number of rows; ranks that fall outside
are sent through it again ("cycle walking") until they fall inside, which keeps it a permutation.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

_ROUNDS = 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def rank(rows: np.ndarray, count: int, seed: int, stream: int) -> np.ndarray:
    """The ranks, 0 to `count` - 1, of row numbers below `count`: int64, a permutation for each (seed, stream)."""
    width = np.uint64(max(1, math.isqrt(max(count - 1, 0)) + 1))
    height = np.uint64(max(1, -(-count // int(width))))
    keys = _keys(seed, stream)
    ranks = _permuted(rows.astype(np.uint64), width, height, keys)
    while len(outside := np.flatnonzero(ranks >= np.uint64(count))):
        ranks[outside] = _permuted(ranks[outside], width, height, keys)
    return cast(np.ndarray, ranks.astype(np.int64))


def mix(rows: np.ndarray, seed: int, stream: int) -> np.ndarray:
    """A random 64-bit number for each row number."""
    return _mixed(rows.astype(np.uint64), _keys(seed, stream)[0])


def _keys(seed: int, stream: int) -> np.ndarray:
    return np.random.SeedSequence([seed, stream]).generate_state(_ROUNDS, np.uint64)


def _permuted(values: np.ndarray, width: np.uint64, height: np.uint64, keys: np.ndarray) -> np.ndarray:
    left, right = values // height, values % height  # left < width, right < height
    for number, key in enumerate(keys):
        if number % 2:
            right = (right + _mixed(left, key)) % height
        else:
            left = (left + _mixed(right, key)) % width
    return cast(np.ndarray, left * height + right)


def _mixed(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """Steele, Lea and Flood's finaliser of SplitMix64."""
    mixed = (values + key) * _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return cast(np.ndarray, mixed ^ (mixed >> np.uint64(31)))
