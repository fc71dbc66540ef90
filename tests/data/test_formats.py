"""Every format, encoding and compression gives the same table; every damaged file says what is wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from core.data import open_source
from core.data.formats.delimited import sniff
from core.errors import DataError, StorageError

TABLE = pa.table({"name": ["Ann, née Süß", 'a "quoted"\nword', None], "n": [1, 2, 3], "w": [0.5, None, 2.0]})
TEXTS = {"name": TABLE["name"].to_pylist(), "n": ["1", "2", "3"], "w": ["0.5", None, "2"]}
CSV = 'name,n,w\n"Ann, née Süß",1,0.5\n"a ""quoted""\nword",2,\nNA,3,2\n'


def content(dataset: Any, columns: list[str] | None = None) -> dict[str, list[Any]]:
    return pa.concat_tables([read() for read in open_source(dataset, columns).blocks(None)]).to_pydict()


def written(path: Path, data: bytes | str) -> str:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def delimited(delimiter: str) -> str:
    return TABLE.to_pandas().to_csv(sep=delimiter, index=False, na_rep="NA", float_format="%g", lineterminator="\n")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt"])
@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_delimiters_are_found(tmp_path: Path, delimiter: str, suffix: str) -> None:
    assert content(written(tmp_path / f"d.{suffix}", delimited(delimiter))) == TEXTS


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a b c\n1 2 3\n", " "),
        ("a:b\n1:2\n", ":"),
        ("a,b\n12:30,x\n12:45,y\n", ","),
        ("text\nsome words here\n", ","),
        ("one two\nsome words here\n", ","),
        ("name;city, state\nx;y, z\nv;w\n", ";"),
        ('text\n"a,b,c"\n', ","),
        ("a,b,c\n1,2,3\n1,2\n1,2,3\n", ","),
    ],
)
def test_delimiters_are_looked_for_with_care(text: str, delimiter: str) -> None:
    assert sniff(text) == delimiter


def test_a_suffix_decides_where_two_delimiters_fit(tmp_path: Path) -> None:
    text = "a\tb, c\n1\t2, 3\n"

    assert content(written(tmp_path / "d.tsv", text)) == {"a": ["1"], "b, c": ["2, 3"]}
    assert content(written(tmp_path / "d.csv", text)) == {"a\tb": ["1\t2"], " c": [" 3"]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    assert content(written(tmp_path / "d.csv", CSV.encode(encoding))) == TEXTS


def test_utf_16_of_either_byte_order(tmp_path: Path) -> None:
    path = written(tmp_path / "d.csv", b"\xfe\xff" + CSV.encode("utf-16-be"))

    assert content(path) == TEXTS


def test_another_encoding_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content(written(tmp_path / "d.csv", CSV.encode("latin-1")))

    assert "not UTF-8 (line 2)" in caplog.text


def test_carriage_returns_and_blank_lines(tmp_path: Path) -> None:
    assert content(written(tmp_path / "d.csv", "a,b\r\n1,2\r\n\r\n3,4\r\n")) == {"a": ["1", "3"], "b": ["2", "4"]}


def test_a_value_longer_than_a_block(tmp_path: Path) -> None:
    text = "word " * 400_000

    found = content(written(tmp_path / "d.csv", f'a,b\n1,"{text}\n{text}"\n2,x\n'))

    assert found["b"] == [f"{text}\n{text}", "x"]


def _bytes(write: Callable[[Any], Any]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _arrow(opener: Callable[..., Any], buffer: Any) -> None:
    with opener(buffer, TABLE.schema) as writer:
        writer.write_table(TABLE)


TYPED = {
    "records.json": json.dumps(TABLE.to_pylist()).encode(),
    "columns.json": json.dumps(TABLE.to_pydict()).encode(),
    "pandas.json": TABLE.to_pandas().to_json().encode(),
    "d.jsonl": "\n".join(json.dumps(record) for record in TABLE.to_pylist()).encode(),
    "d.ndjson": "\n".join(json.dumps(record) for record in TABLE.to_pylist()).encode(),
    "d.parquet": _bytes(lambda buffer: pq.write_table(TABLE, buffer, row_group_size=2)),
    "d.feather": _bytes(lambda buffer: pyarrow.feather.write_feather(TABLE, buffer)),
    "file.arrow": _bytes(lambda buffer: _arrow(pa.ipc.new_file, buffer)),
    "stream.arrows": _bytes(lambda buffer: _arrow(pa.ipc.new_stream, buffer)),
    "d.xlsx": _bytes(lambda buffer: TABLE.to_pandas().to_excel(buffer, index=False)),
}


@pytest.mark.parametrize("name", TYPED)
def test_typed_formats(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, TYPED[name])

    assert content(path) == TABLE.to_pydict()
    assert content(path, ["w", "n"]) == TABLE.select(["w", "n"]).to_pydict()


def _zipped(data: bytes) -> bytes:
    def write(buffer: Any) -> None:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("__MACOSX/d.csv", b"noise")
            archive.writestr("d.csv", data)

    return _bytes(write)


COMPRESSED = {
    "d.csv.gz": gzip.compress(CSV.encode()),
    "d.csv.bz2": bz2.compress(CSV.encode()),
    "d.csv.zst": bytes(pa.compress(CSV.encode(), "zstd", asbytes=True)),
    "d.csv.zip": _zipped(CSV.encode()),
    "d.zip": _zipped(CSV.encode()),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed(tmp_path: Path, name: str) -> None:
    assert content(written(tmp_path / name, COMPRESSED[name])) == TEXTS


def test_json_lines_of_mixed_kinds_become_text_and_times_stay_text(tmp_path: Path) -> None:
    path = written(tmp_path / "d.jsonl", '{"a": 1, "t": "2024-01-01"}\n\n{"a": "x", "b": true}\n')
    times = written(tmp_path / "t.jsonl", '{"t": "2024-01-01", "a": 1}\n{"t": "2024-01-02", "a": 2.5}\n')

    assert content(path) == {"a": ["1", "x"], "t": ["2024-01-01", None], "b": [None, True]}
    assert content(times) == {"t": ["2024-01-01", "2024-01-02"], "a": [1, 2.5]}


@pytest.mark.parametrize(
    "dataset",
    [
        TABLE,
        TABLE.to_pandas(),
        TABLE.to_pandas(types_mapper=pd.ArrowDtype),
        TABLE.to_pylist(),
        TABLE.to_pydict(),
        TABLE.set_column(0, "name", TABLE["name"].dictionary_encode()),
        TABLE.cast(pa.schema([("name", pa.large_string()), ("n", pa.int64()), ("w", pa.float64())])),
    ],
    ids=["arrow", "pandas", "arrow-backed", "records", "columns", "dictionary", "large strings"],
)
def test_data_in_memory(dataset: Any) -> None:
    source = open_source(dataset)

    assert content(dataset) == TABLE.to_pydict()
    assert source.location is None
    assert source.fingerprint() == open_source(TABLE).fingerprint()


def test_a_column_of_several_kinds_becomes_text() -> None:
    frame = pd.DataFrame({"a": [1, "x", None, 2.5], "c": pd.Categorical(["u", "v", None, "u"])})

    assert content(frame) == {"a": ["1", "x", None, "2.5"], "c": ["u", "v", None, "u"]}


def test_folders_globs_and_lists_read_files_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden.csv").write_text("no")
    for number, name in enumerate(["b.csv", "a.csv", "deep/c.csv"]):
        (folder / name).write_text(f"n,m\n{number},x\n")

    assert content(str(folder))["n"] == ["1", "0", "2"]
    assert content(folder)["n"] == ["1", "0", "2"]
    assert content(str(folder / "*.csv"))["n"] == ["1", "0"]
    assert content([folder / "b.csv", str(folder / "deep")])["n"] == ["0", "2"]
    assert content(f"file://{folder}/a.csv")["n"] == ["1"]
    assert open_source(str(folder)).location.url == str(folder)
    assert open_source(str(folder / "*.csv")).location.url == str(folder)
    assert open_source(str(folder / "a.csv")).location.url == str(folder)


def test_files_of_one_dataset_may_differ_in_types_and_order_of_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": ["y"], "a": [0.5]}), tmp_path / "2.parquet")

    assert content(str(tmp_path)) == {"a": [1.0, 0.5], "b": ["x", "y"]}


def test_a_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    one, same, other = (
        open_source(written(tmp_path / name, text)).fingerprint()
        for name, text in [("1.csv", "a\n1\n"), ("2.csv", "a\n1\n"), ("3.csv", "a\n2\n")]
    )
    chunks = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])

    assert one == same != other
    assert open_source(chunks).fingerprint() == open_source(TABLE).fingerprint()
    assert open_source(TABLE.slice(1)).fingerprint() != open_source(TABLE).fingerprint()


def test_a_remote_file_reads_like_a_local_one() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe("/sources/d.csv", CSV.encode())

    assert content("memory://sources/d.csv") == TEXTS
    assert content("memory://sources/*.csv") == TEXTS
    assert content("memory://sources") == TEXTS
    assert open_source("memory://sources/d.csv").location.url == "memory://sources"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("d.csv", b"", "the file is empty"),
        ("d.csv", b"\n\n", "no header"),
        ("d.csv", b"a,b,a\n1,2,3\n", "same name: 'a'"),
        ("d.csv", b"a,b\n1,2\n" + b"1,2\n" * 5000 + b"1,2,3\n", "d.csv:5003: the row has 3 fields, the header 2"),
        ("d.csv", b'a,b\n"x\ny",2\n1\n', "d.csv:4: the row has 1 field"),
        ("d.csv", "a,b\nä,é\nö,ü\nß,".encode() + b"\xff\n", "d.csv:4: byte 0xff cannot be read as UTF-8"),
        ("d.csv", b"a,b\n1,2\n\x00\x01\x02\xff,\xfe\n", "not text"),
        ("d.csv", b"\xff\xfea\x00\n", "cannot be read as UTF-16"),
        ("d.doc", b"x", "unknown kind of file: .doc"),
        ("d", b"x", "unknown kind of file: no suffix"),
        ("d.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:-20], "damaged gzip data"),
        ("d.csv.gz", b"a,b\n1,2\n", "damaged gzip data"),
        ("d.csv.zip", b"a,b\n1,2\n", "damaged zip data"),
        ("d.parquet", TYPED["d.parquet"][:-30], "not a readable Parquet file"),
        ("d.parquet", b"a,b\n1,2\n", "not a readable Parquet file"),
        ("d.feather", TYPED["d.feather"][:-30], "not a readable Arrow file"),
        ("d.arrow", b"a,b\n1,2\n", "not a readable Arrow file"),
        ("d.xlsx", b"a,b\n1,2\n", "not a readable Excel file"),
        ("d.json", b'[{"a": 1},]', "d.json:1:11: not readable as JSON"),
        ("d.json", b'{"a": 1}\n{"a": 2}\n', "JSON lines"),
        ("d.json", b"[1, 2]", "not a table"),
        ("d.json", b'{"a": [1, 2], "b": [1]}', "differ in length"),
        ("d.jsonl", b'{"a": 1}\n{"a": }\n', "d.jsonl:2:7: not readable as JSON"),
        ("d.jsonl", b'{"a": 1}\n3\n', "d.jsonl:2: not a record"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    path = written(tmp_path / name, data)

    with pytest.raises(DataError) as raised:
        content(path)

    assert said in str(raised.value)
    assert name in str(raised.value)


def test_a_zip_of_several_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")

    with pytest.raises(DataError, match="exactly one data file"):
        content(str(tmp_path / "d.zip"))


def test_excel_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "d.xlsx", TYPED["d.xlsx"])
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)

    with pytest.raises(DataError) as raised:
        content(path)

    assert raised.value.hint == "pip install 'core[excel]'"


def test_places_without_data(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.csv").write_text("a\n1\n")
    (tmp_path / "mixed" / "a.json").write_text("[]")

    for dataset, said in {
        str(tmp_path / "titanik.csv"): "no such file",
        str(tmp_path / "*.csv"): "no file matches",
        f"{tmp_path}/mixed/../": "of several formats",
    }.items():
        with pytest.raises(DataError, match=said):
            open_source(dataset)
    (tmp_path / "mixed" / "a.csv").unlink()
    (tmp_path / "mixed" / "a.json").unlink()
    with pytest.raises(DataError, match="the folder has no data file"):
        open_source(tmp_path / "mixed")


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "titanic.csv").write_text("a\n1\n")

    with pytest.raises(DataError) as raised:
        open_source(str(tmp_path / "Titanik.csv"))

    assert raised.value.hint == "did you mean 'titanic.csv'?"


def test_files_with_different_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("a,c\n1,2\n")

    with pytest.raises(DataError, match=r"2\.csv: its columns differ from those of .*1\.csv"):
        open_source(str(tmp_path))


def test_every_missing_column_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "d.csv", "Age,Sex\n1,2\n")

    with pytest.raises(DataError) as raised:
        open_source(path, ["age", "Sex", "Fare"])

    assert [problem.path for problem in raised.value.problems] == ["column 'age'", "column 'Fare'"]
    assert raised.value.hint == "did you mean 'Age'?"


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (5, "not a dataset"),
        ([], "not a dataset"),
        ([1, 2], "not a dataset"),
        ({"a": [1, 2], "b": [1]}, "differ in length"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "same name: 'a'"),
        (pa.table([[1], [2]], names=["a", "a"]), "same name: 'a'"),
    ],
)
def test_things_that_are_no_dataset(dataset: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        open_source(dataset)


def test_a_place_that_cannot_be_reached() -> None:
    with pytest.raises(StorageError, match="Protocol not known"):
        open_source("nowhere://bucket/d.csv")
