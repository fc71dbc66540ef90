"""A file read in parts is the file read at once: the same values, order and errors, wherever it is cut."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.data import open_source
from core.data.blocks import grouped
from core.data.formats import rows
from core.errors import DataError

COUNTS = (2, 3, 5, 17)


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search has to look further than its first window."""
    monkeypatch.setattr(rows, "_WINDOW", 3)


def read(path: Path | str, count: int | None) -> tuple[pa.Table | None, str]:
    """The table, or the first error."""
    try:
        readers = pickle.loads(pickle.dumps(open_source(path).blocks(count)))
        return pa.concat_tables([reader() for reader in readers]), ""
    except DataError as error:
        return None, str(error)


texts = st.lists(st.sampled_from(['"', '""', ",", "\n", "\r\n", "a", "é", " ", '"a\n"', 'x"', '","']), max_size=40)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
def test_any_text_cut_anywhere(text: list[str], tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(b'a,"b\n"\n' + "".join(text).encode())

    expected, error = read(path, 1)

    for count in COUNTS:
        found, wrong = read(path, count)
        assert wrong == error
        assert found == expected or (found is not None and found.equals(expected))


ROWS = [
    {
        "id": str(i),
        "t": ["plain", 'with "quotes"', "two\nlines", 'a 5" pipe', ',\n",\n', "né", "", '"'][i % 8] + str(i % 3),
    }
    for i in range(100)
]


def quoted(row: dict[str, str]) -> str:
    return f'{row["id"]},"' + row["t"].replace('"', '""') + '"\n'


@pytest.mark.parametrize("count", [1, *COUNTS, 300])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16"])
def test_quoted_rows_of_any_encoding(tmp_path: Path, encoding: str, count: int) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(("id,t\n" + "".join(map(quoted, ROWS))).encode(encoding))

    found, _ = read(path, count)

    assert found is not None
    assert found.to_pylist() == ROWS


def test_a_text_is_cut_into_the_parts_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("id,t\n" + "".join(map(quoted, ROWS)))
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, ROWS)))

    for name in ("d.csv", "d.jsonl"):
        for count in (1, 3, 17):
            sizes = [reader().num_rows for reader in open_source(tmp_path / name).blocks(count)]
            assert len(sizes) == count
            assert sum(sizes) == 100
            assert count == 1 or max(sizes) < 200 // count


def test_quotes_that_never_close_make_one_part(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text('a\n"' + "x\n" * 1000)

    assert len(open_source(path).blocks(8)) == 1


@pytest.mark.parametrize("count", [1, *COUNTS])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_row_of_a_wrong_length_is_named_by_its_line(tmp_path: Path, end: str, count: int) -> None:
    path = tmp_path / "d.csv"
    lines = [f'{i},"x{end}y"' for i in range(50)]
    lines[33] = "1,2,3"
    path.write_bytes(f"a,b{end}{end.join(lines)}{end}".encode())

    _, error = read(path, count)

    assert "d.csv:68: the row has 3 fields, the header 2" in error


def test_a_damaged_place_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(b"a,b\n" + "ä,é\n".encode() * 40 + b"\xff,x\n" + "ö,ü\n".encode() * 40)

    for count in (1, *COUNTS):
        assert "d.csv:42: byte 0xff cannot be read as UTF-8" in read(path, count)[1]


def kinds() -> Iterator[Any]:
    yield "integers and fractions", [1, 2, 3] * 20 + [0.5]
    yield "integers beyond 64 bits", [1] * 40 + [1 << 70]
    yield "numbers and texts", [1, 2.5, True] * 20 + ["x"]
    yield "nulls first", [None] * 50 + [1.5]
    yield "nulls only", [None] * 50
    yield "times and texts", ["2024-01-01"] * 40 + ["soon"]
    yield "lists", [[1], [], None] * 20 + [[0.5]]
    yield "truth and numbers", [True] * 30 + [1] * 30


@pytest.mark.parametrize("values", [pytest.param(values, id=name) for name, values in kinds()])
def test_records_cut_anywhere(tmp_path: Path, values: list[Any]) -> None:
    path = tmp_path / "d.jsonl"
    lines = [json.dumps({"a": value, "b": i}) for i, value in enumerate(values)]
    lines[7] = '{"c": "only here"}\n'
    path.write_text("\n".join(lines))

    expected, _ = read(path, 1)

    assert expected is not None
    for count in COUNTS:
        found, _ = read(path, count)
        assert found is not None
        assert found.equals(expected)


@pytest.mark.parametrize("count", [1, *COUNTS])
def test_a_damaged_record_is_named_by_its_line(tmp_path: Path, count: int) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"a": 1}\n' * 30 + "3\n" + '{"a": 1}\n' * 30)

    assert "d.jsonl:31: not a record" in read(path, count)[1]


def test_remote_files_are_read_by_ranges() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe("/blocks/d.csv", ("id,t\n" + "".join(map(quoted, ROWS))).encode())

    found, _ = read("memory://blocks/d.csv", 5)

    assert found is not None
    assert found.to_pylist() == ROWS


def test_many_files_become_the_parts_that_are_asked_for(tmp_path: Path) -> None:
    for number in range(10):
        pq.write_table(
            pa.table({"n": range(number * 10, number * 10 + 10)}), tmp_path / f"{number}.parquet", row_group_size=4
        )
    source = open_source(tmp_path)

    assert len(source.blocks(None)) == 30
    for count in (1, 4, 29):
        readers = source.blocks(count)
        assert len(readers) == count
        assert pa.concat_tables([reader() for reader in readers])["n"].to_pylist() == list(range(100))


@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.floats(0, 1e9), min_size=1, max_size=30), count=st.integers(1, 40))
def test_groups_are_consecutive_and_none_is_empty(sizes: list[float], count: int) -> None:
    readers = [lambda number=number: pa.table({"n": [number]}) for number in range(len(sizes))]

    groups = [reader()["n"].to_pylist() for reader in grouped(readers, sizes, count)]

    assert [number for group in groups for number in group] == list(range(len(sizes)))
    assert len(groups) == min(count, len(sizes))
    assert all(groups)
