"""Where rows start in the middle of a text file, so that it can be read in parts.

A line break inside quotes ends no row, and whether a byte is inside quotes depends on all bytes before it: a quote
opens a value only at the value's start, elsewhere in an unquoted value it is a character, and inside quotes two of
them are one character. Taken run by run, that is simple. An even run of quotes changes nothing. An odd run turns
inside to outside and back where a delimiter or a line break stands before it; where anything else does, it closes,
or is characters, and is outside afterwards either way. So the last odd run of the second kind settles the state, and
it is enough to look back to that, seldom more than a few rows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from core.data.formats.file import File

_WINDOW = 1 << 16
_RUN = re.compile(rb'"+')
_RUN_OR_BREAK = re.compile(rb'"+|\n')


def row_starts(file: File, count: int, first: int, delimiter: str | None) -> list[int]:
    """Offsets that cut the file into `count` parts of about one size, or fewer; 0 and the file's size included.

    Args:
        file: not compressed, and of an encoding that keeps ASCII.
        count: of parts.
        first: where the first row starts, the header left out.
        delimiter: of values that may be quoted; None where a line is a row.
    """
    size = file.size()
    starts = [0]
    for index in range(1, count):
        target = size * index // count
        if target > max(first, starts[-1]):
            start = _first_start(file, max(first, starts[-1]), target, size, delimiter)
            if start == size:
                break
            starts.append(start)
    return [*starts, size]


def _first_start(file: File, known: int, target: int, size: int, delimiter: str | None) -> int:
    """The first offset beyond `target` where a row starts, or `size`. One starts at `known`."""
    quoted = False
    if delimiter is not None:
        target = _after_quotes(file, target, size)
        quoted = _inside_quotes(file, known, target, delimiter.encode())
    for window in _windows():
        stop = min(target + window, size)
        data = file.span(target, stop).to_pybytes()
        found = data.find(b"\n") if delimiter is None else _break(data, quoted, delimiter.encode())
        if found >= 0:
            return target + found + 1
        if stop == size:
            return size
    raise AssertionError


def _after_quotes(file: File, target: int, size: int) -> int:
    """The first offset from `target` on that holds no quote: the runs before it are whole."""
    for window in _windows():
        data = file.span(target, min(target + window, size)).to_pybytes()
        quotes = len(data) - len(data.lstrip(b'"'))
        if quotes < len(data) or target + quotes == size:
            return target + quotes
    raise AssertionError


def _inside_quotes(file: File, known: int, position: int, delimiter: bytes) -> bool:
    """Whether the byte at `position`, which is no quote, is inside quotes; a row starts at `known`."""
    for window in _windows():
        start = max(known, position - window)
        data = file.span(start, position).to_pybytes()
        inside: bool | None = False if start == known else None
        if b'"' in data:
            for run in _RUN.finditer(data):
                at, odd = run.start(), (run.end() - run.start()) % 2
                if at == 0 and start > known:
                    continue  # the rest of a run
                if odd:
                    inside = _after(inside, data[at - 1 : at], delimiter)
        if inside is not None:
            return inside
    raise AssertionError


def _break(data: bytes, inside: bool, delimiter: bytes) -> int:
    """Where in `data` the first line break outside quotes is, or -1."""
    state: bool | None = inside
    for match in _RUN_OR_BREAK.finditer(data):
        at = match.start()
        if data[at] == 0x0A:
            if not state:
                return at
        elif (match.end() - at) % 2:
            state = _after(state, data[at - 1 : at], delimiter)
    return -1


def _after(inside: bool | None, before: bytes, delimiter: bytes) -> bool | None:
    """The state after an odd run of quotes with `before` in front of it (nothing: a row's start); None: not known."""
    if before in (b"", delimiter, b"\n", b"\r"):
        return None if inside is None else not inside
    return False


def _windows() -> Iterator[int]:
    return (_WINDOW << 4 * step for step in itertools.count())
