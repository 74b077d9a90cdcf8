"""The options of ``mainstem.recording``, and the columns that it has with them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem._internal.error_texts import json_problem
from mainstem._internal.units import parse_time
from mainstem.errors import ConfigurationError
from mainstem.recording.open_archives import ReadOptions
from mainstem.recording.rows.scan_range import ScanRange
from mainstem.recording.rows.schema import FRAME_COLUMNS, MESSAGE_COLUMNS, NULLABLE, TIMESTAMP, TIMESTAMP_COLUMN
from mainstem.spark.option_table import (
    TriggerOptions,
    check_trigger,
    choice,
    flag,
    integers,
    option,
    parsed,
    positive,
    text,
)
from mainstem.spark.sources.decoding import CodecOptions, check_codec, check_columns, split_options
from mainstem.store import is_url
from mainstem.store.open_store import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import StructType

    from mainstem.recording import RecordingDescriptor
    from mainstem.recording.rows.schema import Column

# The smallest range that cores share a small input in.
SHARED_BYTES = 16 << 20
# Opening a recording takes as long as reading this many bytes.
RECORDING_BYTES = 1 << 20
# No recording has this id. It is among the ids of a condition, which need not exist.
NO_RECORDING = -1
Where = str | int
WILD = frozenset("*?[")
TIMESTAMPS = ("recorded_at", "reserved_value_ns", "reserved_value_us", "reserved_value_ms")


def _path(value: str, name: str) -> tuple[str, ...]:
    # A directory's name may start with a bracket too.
    return _list(value, name) if value.lstrip().startswith('["') else (value,) if value else ()


def _list(value: str, name: str) -> tuple[str, ...]:
    """Parse a JSON list of paths, which is how ``load`` passes several."""
    try:
        paths = json.loads(value)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise ConfigurationError(f"{name} must be a JSON list of paths (got {value!r})")
    return tuple(paths)


_BOUNDS = (
    "neither 'earliest', 'latest', a position, a time such as 2026-01-31T12:00:00, "
    'nor JSON such as {"0": 4096, "1": "latest"}'
)


def time_ns_of(value: str, name: str, expected: str = _BOUNDS) -> int:
    """Return an ISO 8601 time in nanoseconds since 1970. It is in UTC unless it has an offset."""
    return round(parse_time(value, name=name, expected=expected).timestamp() * 1_000_000) * 1000


def _time(value: str, name: str) -> int:
    return time_ns_of(value, name, "not a time such as 2026-01-31T12:00:00")


def _position(value: str, name: str) -> int:
    try:
        position = int(value)
    except ValueError:
        position = -1
    if position < 0:
        raise ConfigurationError(f"{name} must be a position, an integer >= 0 (got {value!r})")
    return position


def _ids(value: str, name: str) -> frozenset[int]:
    return frozenset(integers(value, name))


def _where(value: str, name: str) -> Where | dict[str, Where]:
    if value.lstrip().startswith("{"):
        try:
            return {_recording(key): _bound(each, name) for key, each in json.loads(value).items()}
        except (ValueError, AttributeError) as error:
            why = json_problem(error) if isinstance(error, json.JSONDecodeError) else error
            raise ConfigurationError(
                f"{name} must be a JSON object of recording ids and positions (got {value!r}): {why}"
            ) from None
    return _bound(value, name)


def _recording(key: str) -> str:
    """Check a key: a recording id, or an archive's id or location, ``/`` and a recording id. Raises ValueError if it is neither."""
    archive, slash, recording = key.rpartition("/")
    archive = place_of(archive) if "/" in archive else archive
    return f"{archive}{slash}{int(recording)}"


def _bound(value: object, name: str) -> Where:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0 or value % 32:
            raise ConfigurationError(f"{name} must be a frame boundary, a multiple of 32 that is >= 0 (got {value})")
        return value
    bound = str(value)
    if bound in ("earliest", "latest"):
        return bound
    try:
        number = int(bound)
    except ValueError:
        time_ns_of(bound, name)
        return bound
    return _bound(number, name)


@dataclass(frozen=True, kw_only=True)
class RecordingOptions(TriggerOptions, CodecOptions):
    """The options of ``mainstem.recording``, in the order of the documentation."""

    path: tuple[str, ...] = option(
        "path",
        _path,
        "the location of the recordings as driver and executors see it: a directory or a [URL](recordings.md). Wildcards match "
        "directories, including new ones while a query runs. Required, unless `paths` is set",
        default="",
    )
    path_list: tuple[str, ...] = option(
        "paths",
        _list,
        "several locations, as a JSON list; `spark.read.load([a, b])` sets it, and a stream needs this option",
        default="[]",
        shown=" ",
    )
    read: ReadOptions = field(default_factory=ReadOptions)
    archive_columns: bool = option(
        "archiveColumns",
        flag,
        "add the columns `archive` and `host`. By default they are added if `path` is a list or a pattern",
        default="false",
        shown=" ",
    )
    parallelism: int | None = option(
        "parallelism",
        positive,
        "how many tasks Spark runs at once. `create_session`, `register` and `mainstem.spark.recordings` set it. If Spark found "
        "the source by itself, it is read from the JVM's command line and `spark-defaults.conf`: `spark.default.parallelism`, "
        "`local[N]`, or executors times cores; with dynamic allocation it is 200, as for a shuffle. Set it for a second session "
        "with other settings in the same JVM",
        shown="the session's",
        tuning=True,
    )
    recording_ids: frozenset[int] = option(
        "recordingId",
        _ids,
        "only these recordings: ids separated by commas. A batch fails if one does not exist",
        default="",
        shown="all",
    )
    stream_ids: frozenset[int] = option("streamId", _ids, "only these streams", default="", shown="all")
    session_ids: frozenset[int] = option("sessionId", _ids, "only these sessions", default="", shown="all")
    rows: str = option(
        "rows",
        choice("messages", "frames", "problems"),
        "`frames`: a row for each frame; `problems`: a row for each problem",
        default="messages",
    )
    from_time_ns: int | None = option(
        "fromTime",
        _time,
        "only rows recorded at or after this time; ISO 8601, UTC unless it has an offset. An error for a recording without an "
        "index, unless `unknownTimes=skip`",
    )
    to_time_ns: int | None = option("toTime", _time, "only rows recorded before this time")
    unknown_times: str = option(
        "unknownTimes",
        choice("fail", "skip"),
        "with `fromTime` or `toTime`: `skip` ignores recordings without times, such as those of Aeron Archive",
        default="fail",
    )
    timestamp_from: str = option(
        "timestampFrom",
        choice("", *TIMESTAMPS),
        "add a column `timestamp`, the event time for watermarks: `recorded_at`, or `reserved_value_ns`, `reserved_value_us` or "
        "`reserved_value_ms` if publishers put the time since 1970 into the reserved value; null if that is 0 or not a time",
        default="",
        shown="none",
    )
    from_position: int | None = option(
        "fromPosition",
        _position,
        "only messages whose `position` is at or after it, in every recording; any number. With `rows=frames`, also the other "
        "frames of the first message",
    )
    to_position: int | None = option(
        "toPosition", _position, "only messages whose `position` is before it. With `rows=frames`, like `fromPosition`"
    )
    starting: Where | dict[str, Where] = option(  # noqa: RUF009
        "startingPositions",
        _where,
        "where a new query starts; a checkpoint overrides it. `earliest`, `latest`, a position, a time, or JSON with one of them "
        'for each recording, `{"0": 4096, "1": "latest"}`, or for a recording of one archive, `{"/data/north/0": 4096}`',
        default="earliest",
    )
    ending: Where | dict[str, Where] = option(  # noqa: RUF009
        "endingPositions",
        _where,
        "where the query ends, in the same form. A streaming query with a position or a time reads up to there",
        default="latest",
    )
    max_rows: int | None = option(
        "maxRowsPerTrigger",
        positive,
        "the most rows that a micro-batch reads. A message that a codec turns into several rows counts once. The frames of a "
        "message are not split, so with `rows=frames` a single longer message exceeds it. Like `maxBytesPerTrigger`, it is shared "
        "among recordings in proportion to their unread bytes. If there is less than a message for each, they take turns. Needs "
        "Spark 4.2",
        limit=True,
    )
    max_rows_per_partition: int | None = option(
        "maxRowsPerPartition",
        positive,
        "the most messages that one task reads, in batch and streaming. Only with `rows=messages`, and not after a problem in a "
        "recording. More than 100,000 tasks are refused",
        tuning=True,
    )
    min_partitions: int = option("minPartitions", positive, "the minimum number of tasks", default="1", tuning=True)
    # Reading this takes less than a second. Four tasks with a quarter each take a sixth longer than one.
    partition_bytes: int = option(
        "partitionBytes",
        positive,
        "the most bytes that a task reads. Each of Spark's cores (`parallelism`) gets the same number of tasks. If there is less "
        "data, the cores share it in ranges of at least 16 MiB. Small recordings share a task, and count as at least 1 MiB each",
        default="512m",
        tuning=True,
    )
    # Each batch costs Spark half a millisecond.
    rows_per_batch: int = option(
        "rowsPerBatch",
        positive,
        "rows of one Arrow batch, which also ends at 8 MiB of payloads",
        default="20000",
        tuning=True,
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        flag,
        "fail if positions were purged, a recording is missing or a frame is corrupt; `false` logs and continues",
        default="true",
    )
    skip_report: str = option(
        "skipReport",
        text,
        "a directory shared by all workers, in which `failOnDataLoss=false` records skipped ranges. "
        "`mainstem.spark.read_skip_report(directory)` sums them by archive and recording",
        default="",
        tuning=True,
    )
    verify: bool = option(
        "verify", flag, "compare the checksums of index and frames before reading (see below)", default="false"
    )

    @property
    def paths(self) -> tuple[str, ...]:
        return self.path_list or self.path

    @cached_property
    def scan_range(self) -> ScanRange:
        return ScanRange(
            from_time_ns=self.from_time_ns,
            to_time_ns=self.to_time_ns,
            from_position=self.from_position,
            to_position=self.to_position,
        )

    def takes(self, descriptor: RecordingDescriptor) -> bool:
        """Return whether the options choose a recording, which may have other sessions than ``session_ids``."""
        pairs = ((self.recording_ids, descriptor.recording_id), (self.stream_ids, descriptor.stream_id))
        return all(not ids or value in ids for ids, value in pairs)


def parse_options(options: Mapping[str, str]) -> RecordingOptions:
    """Parse the options. Raises ConfigurationError with the option, its value and the accepted values."""
    texts, store, codec = split_options(options)
    values = parsed(RecordingOptions, "mainstem.recording", texts)
    made = RecordingOptions(read=ReadOptions.parse(store), codec_options=codec, **values)
    if not made.paths:
        raise ConfigurationError(
            "mainstem.recording needs the option 'path': the directory or URL of the recordings. A table sets it with OPTIONS or"
            " LOCATION, and must not list columns"
        )
    check_trigger(texts, made)
    check_codec(made)
    if made.codec and made.rows == "problems":
        raise ConfigurationError("codec cannot be used with rows=problems, which has no payloads")
    if made.max_rows_per_partition is not None and made.rows != "messages":
        raise ConfigurationError(f"maxRowsPerPartition counts messages, but rows={made.rows}; use partitionBytes")
    if made.max_rows is not None and made.rows == "problems":
        raise ConfigurationError(
            "maxRowsPerTrigger counts messages or frames, but rows=problems; use maxBytesPerTrigger"
        )
    if made.rows == "problems":
        return replace(made, archive_columns=False, fail_on_data_loss=False)
    has_many = len(made.paths) > 1 or any(is_pattern(path) for path in made.paths)
    return replace(made, archive_columns=values.get("archive_columns", has_many))


def is_pattern(path: str) -> bool:
    """Return whether a path has wildcards. An existing path is not a pattern. In a URL, ``?`` starts the options."""
    if is_url(path):
        return bool(WILD & set(path.partition("?")[0]))
    return bool(WILD & set(path)) and not Path(path).exists()


def location_texts(path: Path | str | Sequence[Path | str]) -> dict[str, str]:
    """Return the option for one or several locations."""
    if isinstance(path, str | os.PathLike):
        return {"path": str(path)}
    return {"paths": json.dumps([str(each) for each in path])}


def source_options(
    path: Path | str | Sequence[Path | str], options: Mapping[str, object] | None = None
) -> RecordingOptions:
    """Parse one or several paths, and options, as the source does. Raises ConfigurationError."""
    texts = {name: str(value) for name, value in (options or {}).items()}
    return parse_options(texts | location_texts(path))


# -- columns -----------------------------------------------------------------------------------------------------------


Names = dict[str, bool]
"""The requested columns in order, and whether each is nullable, because Spark requires exactly its own schema."""

# Spark's names for Arrow types.
_SPARK_TYPES = {"int16": "smallint", "int32": "int", "int64": "bigint", "timestamp": "timestamp", "binary": "binary"}


def _with_spark_types(columns: Mapping[str, Column]) -> dict[str, str]:
    return {name: _SPARK_TYPES[column.kind] for name, column in columns.items()}


# One row per problem of a recording.
PROBLEM_COLUMNS = {"recording_id": "bigint", "position": "bigint", "kind": "string", "text": "string"}
# Columns for queries over several archives, or if the option is set: the row's archive, and the host that recorded it.
ARCHIVE_COLUMNS = {"archive": "string", "host": "string"}
_TIMESTAMP_COLUMN = _with_spark_types({TIMESTAMP: TIMESTAMP_COLUMN})
# These columns are null if the value is unknown. Spark processes the others faster, because they are declared never null.
_NULLABLE = {*NULLABLE, "host"}
_COLUMNS = {
    "messages": _with_spark_types(MESSAGE_COLUMNS),
    "frames": _with_spark_types(FRAME_COLUMNS),
    "problems": PROBLEM_COLUMNS,
}


def columns_of(options: RecordingOptions, *, archives: bool = True) -> dict[str, str]:
    """Return the columns that the source has with these options, with their Spark types."""
    columns = _COLUMNS[options.rows]
    if options.rows == "problems":
        return columns
    return columns | (_TIMESTAMP_COLUMN if options.timestamp_from else {}) | (ARCHIVE_COLUMNS if archives else {})


def fields(options: RecordingOptions) -> list[tuple[str, str, bool]]:
    """Return the whole schema: name, type and nullability of each column."""
    columns = columns_of(options, archives=options.archive_columns)
    return [(name, kind, name in _NULLABLE) for name, kind in columns.items()]


def names_of(schema: StructType, options: RecordingOptions) -> Names:
    """Return the columns of a query's schema, in order. Raises ConfigurationError for an unknown column or a wrong type."""
    check_columns("mainstem.recording", schema, columns_of(options))
    return {item.name: item.nullable for item in schema.fields}
