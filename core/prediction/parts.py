"""The parts of a prediction job: written whole, recorded once they are, and found again by a job that goes on.

A part is done when its record is there, which names its size. Records lie in a folder named after the job's digest,
so that what another job, or a process that was taken for dead, leaves behind is never taken for this job's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import attrs

from core.data.digest import TableDigest
from core.data.encode import Inputs
from core.data.sources import FileSource
from core.prediction.output import repeating
from core.prediction.work import Result, Scored, Work
from core.run import CONFIG, METADATA
from core.storage import Location

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
REQUESTS = 16
"""Records that are read at once."""


@attrs.frozen(kw_only=True)
class Parts:
    """Where the parts of one job lie. It can be pickled.

    Attributes:
        folder: of the parts.
        records: folder of what is known of them.
        suffix: ``.arrow`` for parts that become one file, else ``.parquet``.
        count: number of parts.
    """

    folder: Location
    records: Location
    suffix: str
    count: int

    def name(self, number: int) -> str:
        """Of a part, without its suffix: names are in row order."""
        return f"part-{number:0{max(5, len(str(self.count - 1)))}d}"

    def write(self, number: int, result: Result) -> None:
        """Keep what a block came to.

        Raises:
            StorageError: it cannot be written.
        """
        size = None
        if result.table is not None:
            with (self.folder / (self.name(number) + self.suffix)).replacing_file() as path:
                _write(result.table, path.as_posix(), self.suffix)
                size = path.stat().st_size
        if result.scored:
            self._scored(number).write_bytes(_packed(result.scored))
        record = {"rows": result.rows, "read": result.read, "bytes": size, "scored": bool(result.scored)}
        self._record(number).write_bytes(json.dumps(record).encode())

    def done(self) -> dict[int, dict[str, Any]]:
        """The records of the parts that are there, by number."""
        found = self.records.sizes()
        sizes = found if self.records == self.folder else self.folder.sizes()
        numbers = [number for number in range(self.count) if f"{self.name(number)}.json" in found]
        with ThreadPoolExecutor(REQUESTS) as executor:
            records = dict(zip(numbers, executor.map(self._read_record, numbers), strict=True))
        return {
            number: record
            for number, record in records.items()
            if record is not None
            and record["bytes"] == sizes.get(self.name(number) + self.suffix)
            and (not record["scored"] or self._scored(number).name in found)
        }

    def result(self, number: int, record: Mapping[str, Any], *, table: bool) -> Result:
        """What a part that is done holds, with its table where that is wanted."""
        read = None
        if table and record["bytes"] is not None:
            import pyarrow as pa

            data = (self.folder / (self.name(number) + self.suffix)).read_bytes()
            read = pa.ipc.open_file(data).read_all()
        scored = _unpacked(self._scored(number).read_bytes()) if record["scored"] else {}
        return Result(table=read, read=record["read"], rows=record["rows"], scored=scored)

    def _record(self, number: int) -> Location:
        return self.records / f"{self.name(number)}.json"

    def _scored(self, number: int) -> Location:
        return self.records / f"{self.name(number)}.safetensors"

    def _read_record(self, number: int) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads(self._record(number).read_bytes())
        except ValueError:  # cut off, when the machine stopped or its disk was full
            return None
        return record


def job_digest(work: Work, inputs: Inputs, split: str) -> str:
    """A name for all that decides what a job's parts hold: model, content of the dataset, rows, cut, columns."""
    digest = hashlib.blake2b(digest_size=16)
    described = [FORMAT, split, work.index_column, work.scoring, work.batch_size, len(inputs.blocks)]
    digest.update(json.dumps(described).encode())
    for name in (CONFIG, METADATA):  # metadata.json holds the checksum of the weights
        digest.update((work.saved.path / name).read_bytes())
    if isinstance(inputs.source, FileSource):
        digest.update(inputs.source.fingerprint().encode())
    for block in inputs.blocks:
        if not isinstance(inputs.source, FileSource):  # whose cut follows from its content
            table = block.read()
            content = TableDigest(table.schema)
            content.update(table)
            digest.update(content.hexdigest().encode())
        if block.splits is not None:
            digest.update(block.splits.data)
    return digest.hexdigest()


def _write(table: pa.Table, path: str, suffix: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if suffix == ".parquet":
        pq.write_table(table, path, use_dictionary=repeating(table.schema))
        return
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)


def _packed(scored: Scored) -> bytes:
    from safetensors.numpy import save

    return save({f"{index} {name}": part for name, parts in scored.items() for index, part in enumerate(parts)})


def _unpacked(data: bytes) -> Scored:
    from safetensors.numpy import load

    arrays = load(data)
    names = [name.partition(" ")[2] for name in arrays if name.startswith("0 ")]
    return {name: (arrays[f"0 {name}"], arrays[f"1 {name}"]) for name in names}
