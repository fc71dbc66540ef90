"""CSV and its relatives. Every column is read as text: the feature, which knows its type, does the typing."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pyarrow.csv

from core.data.columns import refuse_duplicates
from core.data.formats.file import File
from core.data.formats.text import decoded, marked_encoding
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


def schema(file: File) -> pa.Schema:
    header, _ = _head(file)
    return pa.schema([(name, pa.string()) for name in header])


def blocks(file: File) -> int:
    return 1


def read(file: File, columns: list[str] | None, block: int) -> pa.Table:
    buffer = file.buffer()
    header, delimiter = _head(file)
    if marked_encoding(buffer) == "utf-16":
        buffer = pa.py_buffer(decoded(buffer, str(file)).encode())
    wanted = header if columns is None else columns
    try:
        return _parsed(buffer, delimiter, wanted)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            return _parsed(pa.py_buffer(decoded(buffer, str(file)).encode()), delimiter, wanted)
        raise _explained(error, file, buffer, delimiter) from None


def _parsed(buffer: pa.Buffer, delimiter: str, columns: list[str]) -> pa.Table:
    # Looking for line breaks inside quotes costs time, so it is done only where there are quotes.
    quoted = any(
        b'"' in buffer[start : start + _SCAN_BYTES].to_pybytes() for start in range(0, buffer.size, _SCAN_BYTES)
    )
    block = max(1 << 18, min(1 << 24, buffer.size // 64))
    try:
        return _parsed_in_blocks(buffer, delimiter, columns, quoted=quoted, block=block)
    except pa.ArrowInvalid as error:
        if "straddling" not in str(error):
            raise
        # A value is longer than a block: the file becomes one block.
        return _parsed_in_blocks(buffer, delimiter, columns, quoted=quoted, block=buffer.size + 1)


def _parsed_in_blocks(buffer: pa.Buffer, delimiter: str, columns: list[str], *, quoted: bool, block: int) -> pa.Table:
    return pa.csv.read_csv(
        pa.BufferReader(buffer),
        pa.csv.ReadOptions(block_size=block),
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


def _explained(error: pa.ArrowInvalid, file: File, buffer: pa.Buffer, delimiter: str) -> DataError:
    """The error for rows of a wrong length, with the line's number, which pyarrow's threads do not know."""
    reader = csv.reader(io.StringIO(decoded(buffer, str(file)), newline=""), delimiter=delimiter)
    width = 0
    start = 1
    for row in reader:
        width = width or len(row)
        if row and len(row) != width:
            return DataError(
                f"the row has {len(row)} fields, the header {width}",
                path=f"{file}:{start}",
                found=delimiter.join(row),
                hint="a value that holds the delimiter or a line break needs quotes around it",
            )
        start = reader.line_num + 1
    return file.damaged(error, "CSV")
