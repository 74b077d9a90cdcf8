"""The options of ``mainstem.recording``, checked once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mainstem.errors import ConfigurationError
from mainstem.recording.open_archives import ReadOptions
from mainstem.recording.rows.scan_range import ScanRange
from mainstem.spark.sources.archives import is_pattern
from mainstem.spark.sources.option_values import MAX_TRIGGER_DELAY_NS, flag, positive, trigger_options
from mainstem.store.options import is_store_option
from mainstem.units import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.recording import RecordingDescriptor, RecordingReader

# Less than a second of reading. Four tasks of a quarter of it take a sixth longer than one.
PARTITION_BYTES = 512 << 20
# Less than that for each core is shared by the cores, in pieces of no less than this.
SHARED_BYTES = 16 << 20
# Opening a recording takes as long as reading so much: a task of ten thousand tiny ones is a long one.
RECORDING_BYTES = 1 << 20
# A batch costs Spark half a millisecond, whatever is in it.
ROWS_PER_BATCH = 20_000

NAMES = (
    "archiveColumns", "endingPositions", "failOnDataLoss", "fromPosition", "fromTime", "maxBytesPerTrigger",
    "maxRowsPerPartition", "maxRowsPerTrigger", "maxTriggerDelay", "minBytesPerTrigger", "minPartitions", "parallelism",
    "partitionBytes", "path", "paths", "recordingId", "rows", "rowsPerBatch", "sessionId", "skipReport", "startingPositions",
    "streamId", "timestampFrom", "toPosition", "toTime", "unknownTimes", "verify",
)  # fmt: skip
Where = str | int
ROWS = ("messages", "frames", "problems")
TIMESTAMPS = ("recorded_at", "reserved_value_ns", "reserved_value_us", "reserved_value_ms")


@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """The options of ``mainstem.recording``. Names are compared without regard to case, as Spark does."""

    paths: tuple[str, ...]
    read: ReadOptions = field(default_factory=ReadOptions)
    archive_columns: bool = False
    parallelism: int | None = None
    recording_ids: frozenset[int] = frozenset()
    stream_ids: frozenset[int] = frozenset()
    session_ids: frozenset[int] = frozenset()
    rows: str = "messages"
    timestamp_from: str = ""
    skips_unknown_times: bool = False
    span: ScanRange = field(default_factory=ScanRange)
    starting: Where | dict[str, Where] = "earliest"
    ending: Where | dict[str, Where] = "latest"
    max_bytes: int | None = None
    max_rows: int | None = None
    min_bytes: int | None = None
    max_trigger_delay_ns: int = MAX_TRIGGER_DELAY_NS
    max_rows_per_partition: int | None = None
    min_partitions: int = 1
    partition_bytes: int = PARTITION_BYTES
    rows_per_batch: int = ROWS_PER_BATCH
    fail_on_data_loss: bool = True
    skip_report: str = ""
    verify: bool = False

    def takes(self, descriptor: RecordingDescriptor) -> bool:
        """Whether a recording is one of those asked for."""
        pairs = (
            (self.recording_ids, descriptor.recording_id),
            (self.stream_ids, descriptor.stream_id),
            (self.session_ids, descriptor.session_id),
        )
        return all(not ids or value in ids for ids, value in pairs)


def parse_options(options: Mapping[str, str]) -> RecordingOptions:
    """Checked options. Raises ConfigurationError that names the option, its value and what would be accepted."""
    texts = {key.lower(): value for key, value in options.items()}
    store_options = {key: value for key, value in options.items() if is_store_option(key)}
    texts = {key: value for key, value in texts.items() if not is_store_option(key)}
    if unknown := sorted(set(texts) - {name.lower() for name in NAMES}):
        raise ConfigurationError(f"mainstem.recording has no option {unknown[0]!r}; it has {', '.join(sorted(NAMES))}")
    paths = _paths(texts)
    if not paths:
        raise ConfigurationError(
            "mainstem.recording needs the option 'path': the directory or URL of the recordings; a table gets it by OPTIONS or"
            " LOCATION, and must not name columns of its own"
        )
    has_many = len(paths) > 1 or any(is_pattern(path) for path in paths)
    rows = texts.get("rows", "messages")
    if rows not in ROWS:
        raise ConfigurationError(f"rows: {rows!r} is none of {', '.join(map(repr, ROWS))}")
    timestamp_from = texts.get("timestampfrom", "")
    if timestamp_from and timestamp_from not in TIMESTAMPS:
        raise ConfigurationError(f"timestampFrom: {timestamp_from!r} is none of {', '.join(map(repr, TIMESTAMPS))}")
    unknown_times = texts.get("unknowntimes", "fail")
    if unknown_times not in ("fail", "skip"):
        raise ConfigurationError(f"unknownTimes: {unknown_times!r} is neither 'fail' nor 'skip'")
    max_rows_per_partition = positive(texts, "maxRowsPerPartition", None)
    if max_rows_per_partition is not None and rows != "messages":
        raise ConfigurationError(
            f"maxRowsPerPartition: it counts messages, and the rows are {rows}; use partitionBytes"
        )
    min_bytes, max_trigger_delay_ns = trigger_options(texts)
    return RecordingOptions(
        paths=paths,
        read=ReadOptions.parse(store_options),
        archive_columns=flag(texts, "archiveColumns", has_many) and rows != "problems",
        parallelism=positive(texts, "parallelism", None),
        recording_ids=_ids(texts, "recordingId"),
        stream_ids=_ids(texts, "streamId"),
        session_ids=_ids(texts, "sessionId"),
        rows=rows,
        timestamp_from=timestamp_from,
        skips_unknown_times=unknown_times == "skip",
        span=ScanRange(
            from_time_ns=_time(texts, "fromTime"),
            to_time_ns=_time(texts, "toTime"),
            from_position=_position(texts, "fromPosition"),
            to_position=_position(texts, "toPosition"),
        ),
        starting=_where(texts.get("startingpositions", "earliest"), "startingPositions"),
        ending=_where(texts.get("endingpositions", "latest"), "endingPositions"),
        max_bytes=positive(texts, "maxBytesPerTrigger", None),
        max_rows=positive(texts, "maxRowsPerTrigger", None),
        min_bytes=min_bytes,
        max_trigger_delay_ns=max_trigger_delay_ns,
        max_rows_per_partition=max_rows_per_partition,
        min_partitions=positive(texts, "minPartitions", 1),
        partition_bytes=positive(texts, "partitionBytes", PARTITION_BYTES),
        rows_per_batch=positive(texts, "rowsPerBatch", ROWS_PER_BATCH),
        fail_on_data_loss=flag(texts, "failOnDataLoss", True) and rows != "problems",
        verify=flag(texts, "verify", False),
        skip_report=texts.get("skipreport", ""),
    )


def _paths(texts: Mapping[str, str]) -> tuple[str, ...]:
    """``path``, or ``paths`` as ``load`` has several: a JSON list."""
    if "paths" not in texts:
        path = texts.get("path", "")
        # A directory may have such a name, or match such a pattern.
        return (path,) if path and not path.lstrip().startswith('["') else _list(path)
    return _list(texts["paths"])


def _list(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        paths = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise ConfigurationError(f"paths: {text!r} is no JSON list of paths")
    return tuple(paths)


def _time(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name.lower())
    return None if text is None else time_ns_of(text, name, "no time as in 2026-01-31T12:00:00")


def _position(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name.lower())
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise ConfigurationError(f"{name}: {text!r} is no position: a whole number, not below 0")
    return value


def _ids(texts: Mapping[str, str], name: str) -> frozenset[int]:
    text = texts.get(name.lower(), "")
    try:
        return frozenset(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigurationError(f"{name}: {text!r} is not a list of whole numbers, as in 1,2") from None


def _where(text: str, name: str) -> Where | dict[str, Where]:
    if text.lstrip().startswith("{"):
        try:
            return {_recording(key): _bound(value, name) for key, value in json.loads(text).items()}
        except (ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"{name}: {text!r} is not a JSON object of recording ids and positions: {error}"
            ) from None
    return _bound(text, name)


def _recording(key: str) -> str:
    """A recording id, or the id of an archive, a ``/`` and a recording id. Raises ValueError for anything else."""
    archive, slash, recording = key.rpartition("/")
    return f"{archive}{slash}{int(recording)}"


def _bound(value: object, name: str) -> Where:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0 or value % 32:
            raise ConfigurationError(f"{name}: {value} is no frame boundary (a multiple of 32, not below 0)")
        return value
    text = str(value)
    if text in ("earliest", "latest"):
        return text
    try:
        return _bound(int(text), name)
    except ConfigurationError:
        raise
    except ValueError:
        pass
    time_ns_of(text, name)
    return text


_BOUNDS = (
    "none of 'earliest', 'latest', a position, a time as in 2026-01-31T12:00:00, "
    'or JSON as in {"0": 4096, "1": "latest"}'
)


def time_ns_of(text: str, name: str, expected: str = _BOUNDS) -> int:
    """Epoch nanoseconds of an ISO 8601 time, UTC unless it has an offset."""
    return round(parse_time(text, name=name, expected=expected).timestamp() * 1_000_000) * 1000


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


def resolve(where: Where | dict[str, Where], recording: Resolvable, default: str, *, name: str) -> int:
    """The position that ``where`` means for one recording: within what can be read of it, and between two messages."""
    archive, recording_id = recording.key
    if isinstance(where, dict):
        bound = where.get(f"{archive}/{recording_id}", where.get(str(recording_id), default))
    else:
        bound = where
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
