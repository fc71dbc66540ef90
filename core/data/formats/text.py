"""Which characters a text file's bytes are."""

from __future__ import annotations

import codecs
import logging

import pyarrow as pa

from core.errors import DataError

_log = logging.getLogger("core")

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NOT_TEXT = bytes(set(range(32)) - set(b"\t\n\r\f\x1a\x1b\x0b"))


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
    encoding = marked_encoding(buffer) or "utf-8"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if data.translate(None, _NOT_TEXT) != data and encoding == "utf-8":
            raise DataError("the file is not text", path=where, hint="check that its suffix is right") from None
        line = data.count(b"\n", 0, error.start) + 1
        if encoding != "utf-8" or _mostly_utf8(data):
            raise DataError(
                f"byte 0x{data[error.start]:02x} cannot be read as {encoding.removesuffix('-sig').upper()}",
                path=f"{where}:{line}",
                hint="save the file as UTF-8",
            ) from None
    _log.warning("%s is not UTF-8 (line %d): reading it as Western European text (cp1252)", where, line)
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _mostly_utf8(data: bytes) -> bool:
    """Whether there are more well-formed UTF-8 characters beyond ASCII than damaged places."""
    text = data.decode("utf-8", errors="replace")
    damaged = text.count("\ufffd")
    beyond_ascii = len(text) - len(text.encode("ascii", errors="ignore"))
    return beyond_ascii - damaged > damaged
