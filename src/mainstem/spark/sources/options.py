"""The options of ``mainstem.recording``: one table, from which parsing and documentation are derived."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.units import parse_time
from mainstem.errors import ConfigurationError
from mainstem.recording.open_archives import ReadOptions
from mainstem.recording.rows.scan_range import ScanRange
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
from mainstem.spark.sources.archives import is_pattern
from mainstem.spark.sources.decoding import CodecOptions, check_codec, codec_texts, is_codec_option
from mainstem.store.options import is_store_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mainstem.recording import RecordingDescriptor, RecordingReader

# Less than that for each core is shared by the cores, in pieces of no less than this.
SHARED_BYTES = 16 << 20
# Opening a recording takes as long as reading this many bytes, so a task of ten thousand tiny ones is long.
RECORDING_BYTES = 1 << 20
Where = str | int
TIMESTAMPS = ("recorded_at", "reserved_value_ns", "reserved_value_us", "reserved_value_ms")


def _path(value: str, name: str) -> tuple[str, ...]:
    # A directory may have such a name, or match such a pattern.
    return _list(value, name) if value.lstrip().startswith('["') else (value,) if value else ()


def _list(value: str, name: str) -> tuple[str, ...]:
    """A JSON list of paths, as ``load`` passes several."""
    try:
        paths = json.loads(value)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise ConfigurationError(f"{name}: {value!r} is not a JSON list of paths")
    return tuple(paths)


_BOUNDS = (
    "none of 'earliest', 'latest', a position, a time as in 2026-01-31T12:00:00, "
    'or JSON as in {"0": 4096, "1": "latest"}'
)


def time_ns_of(value: str, name: str, expected: str = _BOUNDS) -> int:
    """Epoch nanoseconds of an ISO 8601 time, UTC unless it has an offset."""
    return round(parse_time(value, name=name, expected=expected).timestamp() * 1_000_000) * 1000


def _time(value: str, name: str) -> int:
    return time_ns_of(value, name, "no time as in 2026-01-31T12:00:00")


def _position(value: str, name: str) -> int:
    try:
        position = int(value)
    except ValueError:
        position = -1
    if position < 0:
        raise ConfigurationError(f"{name}: {value!r} is not a position: a whole number, not below 0")
    return position


def _ids(value: str, name: str) -> frozenset[int]:
    return frozenset(integers(value, name))


def _where(value: str, name: str) -> Where | dict[str, Where]:
    if value.lstrip().startswith("{"):
        try:
            return {_recording(key): _bound(each, name) for key, each in json.loads(value).items()}
        except (ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"{name}: {value!r} is not a JSON object of recording ids and positions: {error}"
            ) from None
    return _bound(value, name)


def _recording(key: str) -> str:
    """A recording id, or the id of an archive, a ``/`` and a recording id. Raises ValueError for anything else."""
    archive, slash, recording = key.rpartition("/")
    return f"{archive}{slash}{int(recording)}"


def _bound(value: object, name: str) -> Where:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0 or value % 32:
            raise ConfigurationError(f"{name}: {value} is not a frame boundary (a multiple of 32, not below 0)")
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
        "the location of the recordings as driver and executors see it: a directory, or a URL ([which](recordings.md)). Wildcards "
        "match directories, also new ones while a query runs. Required, or `paths`",
        default="",
    )
    path_list: tuple[str, ...] = option(
        "paths", _list, "several locations, as a JSON list; `load([a, b])` sets it", default="[]", shown=" "
    )
    read: ReadOptions = field(default_factory=ReadOptions)
    archive_columns: bool = option(
        "archiveColumns",
        flag,
        "add the columns `archive` and `host`; by default they are there if `path` is a list or a pattern",
        default="false",
        shown=" ",
    )
    parallelism: int | None = option(
        "parallelism",
        positive,
        "how many tasks Spark runs at once. `create_session`, `register` and `mainstem.spark.recordings` know it. Where Spark "
        "finds the source by itself, it is what Spark was launched with: `spark.default.parallelism`, `local[N]`, or executors "
        "times cores, by the command line of the JVM and its `spark-defaults.conf`; with dynamic allocation, which has no number, "
        "200, as for a shuffle. A source learns nothing else of Spark: for a second session in one JVM, with other "
        "settings, set it",
        shown="the session's",
        tuning=True,
    )
    recording_ids: frozenset[int] = option(
        "recordingId", _ids, "only these recordings: numbers with commas between them", default="", shown="all"
    )
    stream_ids: frozenset[int] = option("streamId", _ids, "only these streams", default="", shown="all")
    session_ids: frozenset[int] = option("sessionId", _ids, "only these sessions", default="", shown="all")
    rows: str = option(
        "rows",
        choice("messages", "frames", "problems"),
        "`frames`: a row for each frame, `problems`: a row for each fault",
        default="messages",
    )
    from_time_ns: int | None = option(
        "fromTime",
        _time,
        "only rows whose `recorded_at` is at or after it; ISO 8601, UTC unless it has an offset. Refused for a recording without "
        "an index, but for `unknownTimes=skip`",
    )
    to_time_ns: int | None = option("toTime", _time, "only rows whose `recorded_at` is before it")
    unknown_times: str = option(
        "unknownTimes",
        choice("fail", "skip"),
        "with these two, `skip` leaves out recordings that keep no times, such as those of Aeron Archive",
        default="fail",
    )
    timestamp_from: str = option(
        "timestampFrom",
        choice("", *TIMESTAMPS),
        "adds a column `timestamp`, the event time for watermarks: `recorded_at`, or `reserved_value_ns`, `reserved_value_us`, "
        "`reserved_value_ms` if publishers put their time since 1970 into the reserved value; null where that is 0 or no time",
        default="",
        shown="none",
    )
    from_position: int | None = option(
        "fromPosition",
        _position,
        "only messages whose `position` is at or after it, in every recording; any number. Of frames: also the other frames of the "
        "first message",
    )
    to_position: int | None = option(
        "toPosition", _position, "only messages whose `position` is before it. Of frames: as `fromPosition`"
    )
    starting: Where | dict[str, Where] = option(  # noqa: RUF009
        "startingPositions",
        _where,
        "`earliest`, `latest`, a position, a time, or JSON with one of them for each recording: "
        '`{"0": 4096, "1": "latest"}`, or of one archive `{"/data/north/0": 4096}`. A new query starts there; a checkpoint '
        "overrides it",
        default="earliest",
    )
    ending: Where | dict[str, Where] = option(  # noqa: RUF009
        "endingPositions",
        _where,
        "the same, for the end. A stream with a position or a time ends its reading there",
        default="latest",
    )
    max_rows: int | None = option(
        "maxRowsPerTrigger",
        positive,
        "how many rows a micro-batch reads at most, shared among the recordings by what each has waiting, as `maxBytesPerTrigger`. "
        "From Spark 4.2 on",
        limit=True,
    )
    max_rows_per_partition: int | None = option(
        "maxRowsPerPartition",
        positive,
        "the most messages that one task reads, in batch and in streaming; with `rows=messages` only, and not behind a fault of a "
        "damaged recording. More than 100,000 tasks are refused",
        tuning=True,
    )
    min_partitions: int = option("minPartitions", positive, "at least this many tasks", default="1", tuning=True)
    # Less than a second of reading. Four tasks of a quarter of it take a sixth longer than one.
    partition_bytes: int = option(
        "partitionBytes",
        positive,
        "what a task reads at most; as many tasks for each of Spark's cores (`parallelism`) as for the others. If there is less "
        "for each, they share it in pieces of at least 16 MiB. Many small recordings share a task, each counted as 1 MiB at "
        "least",
        default="512m",
        tuning=True,
    )
    # A batch costs Spark half a millisecond, whatever is in it.
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
        "fail where positions were purged, a recording is gone or a frame is damaged; `false` reads on and logs",
        default="true",
    )
    skip_report: str = option(
        "skipReport",
        text,
        "a directory that all workers see. What `failOnDataLoss=false` skips, in batches and in streams, is recorded there, and "
        "`mainstem.spark.read_skip_report(directory)` returns its ranges and bytes by archive and recording",
        default="",
        tuning=True,
    )
    verify: bool = option(
        "verify", flag, "compare the checksums of index and frames before reading, see below", default="false"
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
        pairs = (
            (self.recording_ids, descriptor.recording_id),
            (self.stream_ids, descriptor.stream_id),
            (self.session_ids, descriptor.session_id),
        )
        return all(not ids or value in ids for ids, value in pairs)


def parse_options(options: Mapping[str, str]) -> RecordingOptions:
    """Checked options. Raises ConfigurationError that names the option, its value and what would be accepted."""
    store = {name: value for name, value in options.items() if is_store_option(name)}
    texts = {name: value for name, value in options.items() if name not in store and not is_codec_option(name)}
    values = parsed(RecordingOptions, "mainstem.recording", texts)
    made = RecordingOptions(read=ReadOptions.parse(store), codec_options=codec_texts(options), **values)
    if not made.paths:
        raise ConfigurationError(
            "mainstem.recording needs the option 'path': the directory or URL of the recordings; a table gets it by OPTIONS or"
            " LOCATION, and must not name columns of its own"
        )
    check_trigger(texts, made)
    check_codec(made)
    if made.codec and made.rows == "problems":
        raise ConfigurationError("codec: rows=problems has no payloads to decode")
    if made.max_rows_per_partition is not None and made.rows != "messages":
        raise ConfigurationError(
            f"maxRowsPerPartition: it counts messages, and the rows are {made.rows}; use partitionBytes"
        )
    if made.rows == "problems":
        return replace(made, archive_columns=False, fail_on_data_loss=False)
    has_many = len(made.paths) > 1 or any(is_pattern(path) for path in made.paths)
    return replace(made, archive_columns=values.get("archive_columns", has_many))


def require_times(reader: RecordingReader, name: str) -> None:
    """Raises ConfigurationError where an option is a time and the recording keeps none, as those of Aeron Archive."""
    if not reader.has_times:
        raise ConfigurationError(
            f"{name}: recording {reader.descriptor.recording_id} keeps no times, as it has no index; name positions, "
            "or leave it out by recordingId"
        )


class Resolvable(Protocol):
    """A recording as a plan has it: its reader is opened only where a position cannot be known without."""

    @property
    def key(self) -> tuple[str, int]: ...
    @property
    def start_position(self) -> int: ...
    @property
    def end_position(self) -> int: ...
    @property
    def reader(self) -> RecordingReader: ...


def source_options(
    path: Path | str | Sequence[Path | str], options: Mapping[str, object] | None = None
) -> RecordingOptions:
    """Parse a path, or several, and options as the source does. Raises ConfigurationError."""
    texts = {name: str(value) for name, value in (options or {}).items()}
    if isinstance(path, str | os.PathLike):
        return parse_options(texts | {"path": str(path)})
    return parse_options(texts | {"paths": json.dumps([str(each) for each in path])})


def bound_of(where: Where | dict[str, Where], recording: Resolvable, default: str) -> Where:
    """What ``where`` says of one recording."""
    if not isinstance(where, dict):
        return where
    archive, recording_id = recording.key
    return where.get(f"{archive}/{recording_id}", where.get(str(recording_id), default))


def resolve(where: Where | dict[str, Where], recording: Resolvable, default: str, *, name: str) -> int:
    """The position that ``where`` means for one recording: within what can be read of it, and between two messages."""
    bound = bound_of(where, recording, default)
    if bound == "earliest":
        return recording.start_position
    last = recording.end_position
    if bound == "latest":
        return last
    reader = recording.reader
    if isinstance(bound, str):
        require_times(reader, name)
        return min(reader.position_at_time(time_ns_of(bound, name)), last)
    first = recording.start_position
    return reader.advance(first, min(max(bound, first), last))
