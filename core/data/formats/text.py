"""Which characters a text file's bytes are."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterable

import pyarrow as pa

from core.errors import DataError

_log = logging.getLogger("core")

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NOT_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\x1a\x1b\x0b"))
_NOT_CP1252 = b"\x81\x8d\x8f\x90\x9d"
_BREAK = b"\n"


def marked_encoding(buffer: pa.Buffer) -> str | None:
    """The encoding that a byte-order mark at the start announces."""
    start = buffer.slice(0, min(4, buffer.size)).to_pybytes()
    return next((encoding for mark, encoding in _MARKS if start.startswith(mark)), None)


def decoded(buffer: pa.Buffer, where: str) -> str:
    """The text: UTF-8, what a byte-order mark says, or else Windows' or ISO's Western European encoding.

    Raises:
        DataError: the bytes are no text, or UTF-8 with damaged places.
    """
    data: bytes = buffer.to_pybytes()
    if marked_encoding(buffer) != "utf-16":
        return data.decode(encoding_of(lambda: [data], where))
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError as error:
        raise _damaged(data[error.start], "utf-16", f"{where}:{data.count(_BREAK, 0, error.start) + 1}") from None


def encoding_of(chunks: Callable[[], Iterable[bytes]], where: str) -> str:
    """The encoding of a text, which is not UTF-16, in chunks that end where lines do; the errors of `decoded`."""
    marked = "utf-8"
    for number, data in enumerate(chunks()):
        if not number:
            marked = marked_encoding(pa.py_buffer(data)) or marked
        if not data.isascii():
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                return _beyond_utf8(chunks(), marked, where)
    return marked


def _beyond_utf8(chunks: Iterable[bytes], marked: str, where: str) -> str:
    """The encoding of a text that is not UTF-8 throughout."""
    line = 0  # of the first damaged place
    lines = surplus = byte = 0
    undefined = False
    for data in chunks:
        if data.translate(None, _NOT_TEXT) != data and marked == "utf-8":
            raise DataError("the file is not text", path=where, hint="check that its suffix is right")
        if not line:
            try:
                data.decode("utf-8")
            except UnicodeDecodeError as error:
                line, byte = lines + data.count(_BREAK, 0, error.start) + 1, data[error.start]
            lines += data.count(_BREAK)
        surplus += _intact(data)
        undefined = undefined or data.translate(None, _NOT_CP1252) != data
    if marked != "utf-8" or surplus > 0:
        raise _damaged(byte, marked, f"{where}:{line}")
    _log.warning("%s is not UTF-8 (line %d): reading it as Western European text (cp1252)", where, line)
    return "latin-1" if undefined else "cp1252"


def _damaged(byte: int, encoding: str, where: str) -> DataError:
    name = encoding.removesuffix("-sig").upper()
    return DataError(f"byte 0x{byte:02x} cannot be read as {name}", path=where, hint="save the file as UTF-8")


def _intact(data: bytes) -> int:
    """How many more well-formed UTF-8 characters beyond ASCII than damaged places there are."""
    text = data.decode("utf-8", errors="replace")
    damaged = text.count("\ufffd")
    beyond_ascii = len(text) - len(text.encode("ascii", errors="ignore"))
    return beyond_ascii - 2 * damaged
