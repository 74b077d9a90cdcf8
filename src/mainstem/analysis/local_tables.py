"""Builds the tables of an analysis in this process: DuckDB evaluates expressions and queries, and the folds run in Python.

Each expression and query is written once, in SQL that Spark and DuckDB both accept. ``MACROS`` adds Spark's functions to DuckDB.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from glob import escape
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.analysis.folds.fold import PREFIX, TIMES, from_arrow
from mainstem.analysis.folds.path import CHANNEL
from mainstem.analysis.tables import CHANNEL_OF_AERON, FOLDS, FRAMES, SELECTIONS, TABLES, TIME, sources
from mainstem.capture.files import captures
from mainstem.capture.index_store import index_of
from mainstem.capture.planning import FrameSelection, unreadable
from mainstem.capture.ports import parse_aeron_ports, parse_ports
from mainstem.capture.reading import frames, read
from mainstem.capture.schema import COLUMNS, arrow_kinds, arrow_schema
from mainstem.errors import CaptureError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from mainstem.analysis.folds.fold import Fold, Row
    from mainstem.analysis.options import Inputs
    from mainstem.analysis.summary import RowDict
    from mainstem.analysis.tables import Table

    Keyed = tuple[tuple[Any, ...], Row]

# Spark functions, defined for DuckDB. DuckDB's own `concat` skips nulls.
MACROS = (
    "concat(a, b) as a || b, (a, b, c) as a || b || c",
    "regexp_like(text, pattern) as regexp_matches(text, pattern)",
    "pmod(a, b) as ((a % b) + b) % b",
    "conv(digits, base, other) as if(base = 16, cast(try_cast('0x' || digits as bigint) as varchar), hex(cast(digits as bigint)))",
    "xxhash64(a, b) as cast(hash(a, b) >> 1 as bigint)",
    "percentile_approx(x, share, accuracy) as quantile_disc(x, share)",
)
# Sort nulls as Spark does, and never download extensions.
SETTINGS = ("default_null_order = 'nulls_first_on_asc_last_on_desc'", "autoinstall_known_extensions = false")
SPILL = ".spill"
PIECE = 1 << 17  # rows per row group that is written
BATCH = 1 << 15  # rows per batch that is read
_NAMES = tuple(column.name for column in COLUMNS)
_TEXTS = [column.name for column in FRAMES.columns if column.type == "string"]
TYPES = {"string": "varchar", "timestamp": "timestamptz"}  # where DuckDB's name differs


class LocalTables:
    """The tables in ``directory``. As with Spark, each is a directory, here with one file."""

    def __init__(self, directory: Path, ports: Mapping[str, str]) -> None:
        with needs_extras():
            import duckdb
        self._directory = directory
        texts = {name.lower(): value for name, value in ports.items()}
        self._selection = FrameSelection(
            names=_NAMES,
            aeron_ports=parse_aeron_ports(texts.get("aeronports", "auto")),
            bymux_ports=parse_ports(texts.get("bymuxports", ""), "bymuxPorts"),
            jmux_ports=parse_ports(texts.get("jmuxports", ""), "jmuxPorts"),
            rows=BATCH,
            count_skipped=True,
        )
        self._db = duckdb.connect()
        settings = (*SETTINGS, f"temp_directory = {_text(str(directory / SPILL))}")
        for statement in (*(f"set {setting}" for setting in settings), *(f"create macro {macro}" for macro in MACROS)):
            self._db.execute(statement)

    def close(self) -> None:
        self._db.close()
        shutil.rmtree(self._directory / SPILL, ignore_errors=True)

    def query(self, sql: str) -> list[RowDict]:
        # To make datetimes, DuckDB needs a package that may not be installed. `time_ns` has the same information.
        tables = {name: f"(select * exclude (time) from {name})" for name in TABLES}
        result = self._db.execute(sql.format_map(tables | {"div": "//"}))
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def run_all(self, jobs: Iterable[Callable[[], object]]) -> None:
        for job in jobs:
            job()

    def write_frames(self, inputs: Inputs) -> None:
        file = self._new_file("frames")
        schema = arrow_schema(_NAMES).append(pa.field("channel", pa.string()))
        # Dictionaries of numbers cost more time than they save space. Write one piece while the next is read.
        with (
            pq.ParquetWriter(file, schema, use_dictionary=_TEXTS) as writer,
            ThreadPoolExecutor(1, "mainstem-tables") as thread,
        ):
            written: Future[None] | None = None
            # Do not let DuckDB run code that may raise or be interrupted: it would hide the error.
            for piece in _gathered(chain(self._captured(inputs.captures), self._stored(inputs.frames))):
                self._db.register("piece", piece)
                channel = self._arrow(f"select {CHANNEL_OF_AERON} as channel from piece").read_all()
                whole = piece.append_column("channel", channel["channel"].cast(pa.string()))
                if written is not None:
                    written.result()
                written = thread.submit(writer.write_table, whole)
            if written is not None:
                written.result()
        self._view("frames", file)

    def write_tables(self) -> None:
        for name in ("naks", "status_messages"):
            self._copy(TABLES[name], _selected(name))
        parts: dict[str, list[pa.Table]] = {}
        for fold in FOLDS:
            for name, table in self._folded(fold).items():
                parts.setdefault(name, []).append(table)
        for name, tables in parts.items():
            self._write(name, tables)

    def write_recorded_sessions(self, paths: Sequence[str]) -> None:
        raise AssertionError(f"recordings are read with Spark: {paths}")

    def write_problems(self, *, frames: bool, recordings: Sequence[str]) -> None:
        assert frames
        assert not recordings, "recordings are read with Spark"
        summed = {"packet": "max(packet)", "packets": "sum(packets)"}
        names = TABLES["problems"].names
        whole = ", ".join(f"{summed.get(name, name)} as {name}" for name in names)
        same = ", ".join(name for name in names if name not in summed)
        passed, problems = "kind = 'PASSED_OVER'", f"({_selected('problems')})"
        self._copy(
            TABLES["problems"],
            f"select {whole} from {problems} where {passed} group by {same}"
            f" union all by name select * from {problems} where not {passed}",
        )

    def _captured(self, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in (file for path in paths for file in captures(path)):
            try:
                index = index_of(file, None)
            except CaptureError as error:
                yield from read(unreadable(file, str(error)), self._selection)
            else:
                yield from frames(file, self._selection, index)

    def _stored(self, directories: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for directory in directories:
            import pyarrow.dataset as ds  # not needed for captures

            files = [str(file) for file in sorted(Path(directory).glob("*.parquet"))]
            try:
                yield from ds.dataset(files, schema=arrow_schema(_NAMES), format="parquet").to_batches()
            except (OSError, ValueError, NotImplementedError) as error:
                raise CaptureError(f"{directory} has no frames: {error}") from error

    def _folded(self, fold: Fold) -> dict[str, pa.Table]:
        rows: dict[str, list[Keyed]] = {kind.name: [] for kind in fold.kinds}
        for key, row in self._rows(fold):
            rows[row.kind].append((key, row))
        return {name: _table(TABLES[name], fold, keyed) for name, keyed in rows.items()}

    def _rows(self, fold: Fold) -> Iterator[Keyed]:
        """Yield every row of a fold in its final form. Reads frames by key, and those of each key in order of time."""
        keys = [column.name for column, _ in fold.keys]
        named = [f"{_channel_known(expression)} as {column.name}" for column, expression in fold.keys]
        named += [f"{expression} as {PREFIX}{name}" for name, expression in fold.inputs.items()]
        order = ", ".join((*keys, *(PREFIX + name for name in TIMES)))
        chosen = f"select * from (select {', '.join(named)} from frames where {fold.where}) order by {order}"
        key: tuple[Any, ...] = ()
        state: Any = None
        for batch in self._arrow(chosen):
            for piece in _by_key(batch, len(keys)):
                own = tuple(column[0].as_py() for column in piece.columns[: len(keys)])
                if state is None or own != key:
                    if state is not None:
                        yield from ((key, row) for row in fold.pending_rows(state))
                    key, state = own, fold.fresh()
                yield from ((key, row) for row in fold.feed(state, from_arrow(piece, fold.inputs)))
        if state is not None:
            yield from ((key, row) for row in fold.pending_rows(state))

    def _arrow(self, sql: str) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_stream(self._db.sql(sql))

    def _copy(self, table: Table, sql: str) -> None:
        columns = (
            f"cast({column.name} as {TYPES.get(column.type, column.type)}) as {column.name}" for column in table.columns
        )
        file = self._new_file(table.name)
        self._db.execute(f"copy (select {', '.join(columns)} from ({sql})) to {_text(str(file))} (format parquet)")
        self._view(table.name, file)

    def _write(self, name: str, tables: Sequence[pa.Table]) -> None:
        file = self._new_file(name)
        pq.write_table(pa.concat_tables(tables), file, coerce_timestamps="us")
        self._view(name, file)

    def _new_file(self, name: str) -> Path:
        directory = self._directory / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "_SUCCESS").touch()
        return directory / "part-0.parquet"

    def _view(self, name: str, file: Path) -> None:
        """Make a written table available to queries."""
        self._db.execute(f"create view {name} as select * from read_parquet({_text(escape(str(file)))})")


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _selected(name: str) -> str:
    selection = SELECTIONS[name]
    columns = _channel_known(", ".join(selection.expressions(TABLES[name])))
    return f"select {columns} from frames where {selection.where}"


def _channel_known(expression: str) -> str:
    """Rewrite an expression to use the frames' existing column ``channel`` instead of computing ``CHANNEL`` again."""
    return expression.replace(CHANNEL, "channel")


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches into tables of about ``PIECE`` rows."""
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        parts.append(batch)
        if sum(part.num_rows for part in parts) >= PIECE:
            yield pa.Table.from_batches(parts)
            parts = []
    if parts:
        yield pa.Table.from_batches(parts)


def _by_key(batch: pa.RecordBatch, keys: int) -> Iterator[pa.RecordBatch]:
    """Split a batch into runs of rows that are equal in the first ``keys`` columns."""
    changes = np.zeros(max(batch.num_rows - 1, 0), bool)
    for column in batch.columns[:keys]:
        before, after = column[:-1], column[1:]
        # The capture may lack the endpoint that names a channel, so null is a valid key.
        changed = pc.coalesce(pc.not_equal(before, after), pc.xor(before.is_null(), after.is_null()))
        changes |= changed.to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        if end > start:
            yield batch.slice(start, end - start)


def _table(table: Table, fold: Fold, rows: Sequence[Keyed]) -> pa.Table:
    """Make a table from the rows of a fold, with each column from the place that ``sources`` gives."""
    types = arrow_kinds()
    numbers = {column.name: number for number, (column, _) in enumerate(fold.keys)}

    def values(place: str) -> list[Any]:
        _, _, field = place.partition(".")
        if field:
            return [row.values.get(field) for _, row in rows]
        return [key[numbers[place]] for key, _ in rows] if place in numbers else [row.revision for _, row in rows]

    columns = {}
    for column, place in sources(table, fold):
        if column is TIME:
            micros = [None if ns is None else ns // 1000 for ns in values(place)]
            columns[column.name] = pa.array(micros, pa.timestamp("us", tz="UTC"))
        elif place:
            columns[column.name] = pa.array(values(place), types[column.type])
        else:
            columns[column.name] = pa.array(["" if column.type == "string" else 0] * len(rows), types[column.type])
    return pa.table(columns)
