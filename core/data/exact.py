"""Means and variances that are exact until the last step, so that no grouping of rows can change a bit of them.

A float64 is an integer of 53 bits times a power of two. Integers add without error, so the integers are summed
apart for each power of two (`numpy.bincount`), in limbs narrow enough for float64 and int64 to hold their sums, and
joined in Python integers of any length when somebody asks. Squares go the same way, through products of limbs.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

_LIMB = 18
_CHUNK = 1 << 14
"""Products of limbs stay below 2**38, so the float64 sums of a chunk stay below 2**53: exact."""
_FLUSH_CHUNKS = 512
"""Int64 sums of this many chunks stay below 2**63."""
_SMALL = 2.0**24
"""Squares of whole numbers up to this, a chunk of them, sum to less than 2**63."""
_BIAS = 1074
_BINS = _BIAS + 1025
"""One for each exponent that `frexp` gives a float64, from -1073 to 1024."""
_SHIFTS = (36, 0, 72, 54, 36, 18, 0)
"""Powers of two of the seven limb sums: two of values, five of squares."""
_SCALE = 1200
"""Sums are integers in units of 2**-_SCALE, sums of squares in units of 2**(-2 * _SCALE)."""


class ExactMoments:
    """Count, sum, sum of squares and range of finite float64 values, exact in any grouping.

    Attributes:
        count: number of values taken in.
        min, max: their range; inf and -inf while there are none.
    """

    def __init__(self) -> None:
        self.count = 0
        self.min = math.inf
        self.max = -math.inf
        self._sum = 0
        self._squares = 0
        self._bins = np.zeros((len(_SHIFTS), _BINS), np.int64)
        self._pending = 0

    def update(self, values: np.ndarray) -> None:
        """Take in a one-dimensional float64 array of finite values."""
        if not len(values):
            return
        self.count += len(values)
        self.min = min(self.min, float(values.min()))
        self.max = max(self.max, float(values.max()))
        small = max(-self.min, self.max) <= _SMALL
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK]
            if not (small and self._add_whole(chunk)):
                self._add(chunk)

    def merge(self, other: ExactMoments) -> None:
        """Take in the moments of other values."""
        self._flush()
        total, squares = other._totals()
        self.count += other.count
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)
        self._sum += total
        self._squares += squares

    def mean(self) -> float:
        """The mean, correctly rounded; NaN of no values."""
        return self._totals()[0] / (self.count << _SCALE) if self.count else math.nan

    def variance(self, ddof: int = 0) -> float:
        """The variance, correctly rounded (inf where too large for a float); NaN of `ddof` values or fewer."""
        return _rounded(self._variance(ddof)) if self.count > ddof else math.nan

    def std(self, ddof: int = 0) -> float:
        """The square root of the exact variance, within one unit in the last place."""
        if self.count <= ddof:
            return math.nan
        variance = self._variance(ddof)
        if not variance:
            return 0.0
        # 64 bits of the root, or a few more, whatever the size of the variance.
        shift = 64 - (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
        root = math.isqrt(int(variance * Fraction(4) ** shift))
        return _rounded(root / Fraction(2) ** shift)

    def __getstate__(self) -> dict[str, object]:
        self._flush()
        return {**self.__dict__, "_bins": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _bins=np.zeros((len(_SHIFTS), _BINS), np.int64))

    def _variance(self, ddof: int) -> Fraction:
        total, squares = self._totals()
        return Fraction(self.count * squares - total * total, self.count * (self.count - ddof) << 2 * _SCALE)

    def _add_whole(self, values: np.ndarray) -> bool:
        """Take in values of at most `_SMALL` if all of them are whole numbers: an easier case, and a frequent one."""
        whole = values.astype(np.int64)
        if not np.array_equal(whole, values):
            return False
        self._sum += int(whole.sum()) << _SCALE
        self._squares += int(np.dot(whole, whole)) << 2 * _SCALE
        return True

    def _add(self, values: np.ndarray) -> None:
        mantissas, exponents = np.frexp(values)
        integers = np.ldexp(mantissas, 53).astype(np.int64)
        lowest, highest = int(exponents.min()), int(exponents.max())
        exponents = (exponents - lowest).astype(np.int64)
        sizes = np.abs(integers)
        low = (sizes & 0x3FFFF).astype(np.float64)
        middle = ((sizes >> _LIMB) & 0x3FFFF).astype(np.float64)
        high = (sizes >> 2 * _LIMB).astype(np.float64)
        limbs = (
            integers >> 2 * _LIMB,
            integers & 0xFFFFFFFFF,
            high * high,
            2 * high * middle,
            2 * high * low + middle * middle,
            2 * middle * low,
            low * low,
        )
        place = slice(lowest + _BIAS, highest + _BIAS + 1)
        for row, limb in zip(self._bins, limbs, strict=True):
            row[place] += np.bincount(exponents, limb).astype(np.int64)
        self._pending += 1
        if self._pending == _FLUSH_CHUNKS:
            self._flush()

    def _flush(self) -> None:
        self._sum, self._squares = self._totals()
        self._bins[:] = 0
        self._pending = 0

    def _totals(self) -> tuple[int, int]:
        """The sum and the sum of squares as integers in units of 2**-_SCALE and 2**(-2 * _SCALE)."""
        total, squares = self._sum, self._squares
        for bin_ in np.flatnonzero(self._bins.any(axis=0)).tolist():
            sums = [count << shift for count, shift in zip(self._bins[:, bin_].tolist(), _SHIFTS, strict=True)]
            exponent = bin_ - _BIAS - 53 + _SCALE  # of the integers' last bit
            total += sum(sums[:2]) << exponent
            squares += sum(sums[2:]) << 2 * exponent
        return total, squares


def _rounded(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf
