"""CSV and its relatives. Every column is read as text: the feature, which knows its type, does the typing."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Sequence

import attrs
import pyarrow as pa
import pyarrow.csv

from core.data.columns import refuse_duplicates
from core.data.formats.file import File
from core.data.formats.rows import row_starts
from core.data.formats.text import decoded, encoding_of, marked_encoding
from core.errors import DataError

NULL_TOKENS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""Texts that mean a missing value: the defaults of `pandas.read_csv`."""

_SAMPLE_BYTES = 1 << 16
_SCAN_BYTES = 1 << 22
_SURE, _UNSURE = ",\t;|", ": "
"""Delimiters to look for, the more usual first; the unsure ones occur inside values too."""
_NAMED = {".tsv": "\t", ".tab": "\t", ".psv": "|"}
"""Delimiters that a suffix makes likely."""


@attrs.frozen
class Rows:
    """Those between two offsets of a file whose encoding is known."""

    start: int
    stop: int
    encoding: str
    header: tuple[str, ...]
    delimiter: str


def schema(file: File) -> pa.Schema:
    header, _ = _head(file)
    return pa.schema([(name, pa.string()) for name in header])


def parts(file: File, count: int) -> list[Rows | None]:
    if count < 2 or file.compression or marked_encoding(file.head(4)) == "utf-16":
        return [None]
    header, delimiter = _head(file)
    encoding = encoding_of(file.chunks, str(file))
    edges = row_starts(file, count, _header_end(file, delimiter), delimiter)
    return [Rows(*pair, encoding, tuple(header), delimiter) for pair in itertools.pairwise(edges)]


def read(file: File, schema: pa.Schema, part: Rows | None) -> pa.Table:
    if part is not None:
        return _read_rows(file, schema.names, part)
    buffer = file.buffer()
    _, delimiter = _head(file)
    if marked_encoding(buffer) == "utf-16":
        buffer = pa.py_buffer(decoded(buffer, str(file)).encode())
    try:
        return _parsed(buffer, delimiter, schema.names)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            return _parsed(pa.py_buffer(decoded(buffer, str(file)).encode()), delimiter, schema.names)
        text = decoded(buffer, str(file))
        raise _explained(error, file, text, delimiter) from None


def _read_rows(file: File, columns: list[str], rows: Rows) -> pa.Table:
    buffer = file.span(rows.start, rows.stop)
    if not rows.encoding.startswith("utf-8"):
        buffer = pa.py_buffer(str(buffer, rows.encoding).encode())
    header = rows.header if rows.start else None
    try:
        return _parsed(buffer, rows.delimiter, columns, header)
    except pa.ArrowInvalid as error:
        text = str(file.span(rows.start, rows.stop), rows.encoding)
        before = file.lines_before(rows.start)
        raise _explained(error, file, text, rows.delimiter, before, len(rows.header) if header else 0) from None


def _parsed(buffer: pa.Buffer, delimiter: str, columns: list[str], header: Sequence[str] | None = None) -> pa.Table:
    """The rows; `header` names the columns of text that has none."""
    # Looking for line breaks inside quotes costs time, so it is done only where there are quotes.
    quoted = any(
        b'"' in buffer[start : start + _SCAN_BYTES].to_pybytes() for start in range(0, buffer.size, _SCAN_BYTES)
    )
    block = max(1 << 18, min(1 << 24, buffer.size // 64))
    try:
        return _parsed_in_blocks(buffer, delimiter, columns, header, quoted=quoted, block=block)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
        # A value is longer than a block: the file becomes one block.
        return _parsed_in_blocks(buffer, delimiter, columns, header, quoted=quoted, block=buffer.size + 1)


def _parsed_in_blocks(
    buffer: pa.Buffer, delimiter: str, columns: list[str], header: Sequence[str] | None, *, quoted: bool, block: int
) -> pa.Table:
    return pa.csv.read_csv(
        pa.BufferReader(buffer),
        pa.csv.ReadOptions(block_size=block, column_names=header),
        pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=quoted),
        pa.csv.ConvertOptions(
            include_columns=columns,
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=NULL_TOKENS,
            strings_can_be_null=True,
        ),
    )


def _head(file: File) -> tuple[list[str], str]:
    """The names of the columns, and the delimiter."""
    text = _sample(file)
    delimiter = sniff(text, _NAMED.get(file.suffix, ","))
    header = next(iter(_rows(text, delimiter)), [])
    if not header:
        raise DataError("the file has no header", path=str(file), expected="a first line with the columns' names")
    refuse_duplicates(header, str(file))
    return header, delimiter


def _sample(file: File) -> str:
    """The first lines as text, without a last one that is cut off."""
    sample = file.head(_SAMPLE_BYTES)
    encoding = marked_encoding(sample)
    if encoding == "utf-16":
        return str(sample.to_pybytes().decode(encoding, errors="ignore"))
    if sample.size == _SAMPLE_BYTES:
        end = sample.to_pybytes().rfind(b"\n") + 1
        sample = sample.slice(0, end or sample.size)
    data: bytes = sample.to_pybytes()
    try:
        return data.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        return decoded(sample, str(file))


def sniff(text: str, likely: str = ",") -> str:
    """The delimiter of the lines in `text`: one that cuts them into equally many fields, two at least."""
    best, best_score = likely, (0.0, 0)
    for delimiter in likely + _SURE.replace(likely, "") + _UNSURE:
        counts = [len(row) for row in _rows(text, delimiter)][:200]
        if not counts or counts[0] < 2:
            continue
        even = counts.count(counts[0]) / len(counts)
        if delimiter in _UNSURE and (best_score[0] or even < 1):
            continue
        # Many equal rows first, then many columns: one uneven row must not hide the right delimiter.
        score = (round(even, 1), counts[0])
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _rows(text: str, delimiter: str) -> list[list[str]]:
    csv.field_size_limit(1 << 30)
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


def _header_end(file: File, delimiter: str) -> int:
    """The offset of the first row after the header."""
    # Latin-1 makes a character of each byte, and leaves alone what matters to CSV.
    lines = io.StringIO(str(file.head(_SAMPLE_BYTES), "latin-1"), newline="").readlines()
    reader = csv.reader(lines, delimiter=delimiter)
    next(row for row in reader if row)
    return sum(map(len, lines[: reader.line_num]))


def _explained(
    error: pa.ArrowInvalid, file: File, text: str, delimiter: str, line: int = 0, width: int = 0
) -> DataError:
    """The error for rows of a wrong length, with the line's number, which pyarrow's threads do not know.

    `text` comes after `line` lines; `width` is the header's where that is not part of it.
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    start = 1
    for row in reader:
        width = width or len(row)
        if row and len(row) != width:
            return DataError(
                f"the row has {len(row)} fields, the header {width}",
                path=f"{file}:{line + start}",
                found=delimiter.join(row),
                hint="a value that holds the delimiter or a line break needs quotes around it",
            )
        start = reader.line_num + 1
    return file.damaged(error, "CSV")
