"""``mainstem.live``: reads an Aeron channel as a streaming source.

With ``recordTo``, the query's driver process records the channel into that directory, and the query reads the recording exactly
once. Without it, the guarantee is *at most once*: the recording is temporary and lasts only while the query runs. If the query
fails, uncommitted messages are lost.
"""

from __future__ import annotations

import logging
import tempfile
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import documents, integers, option, parsed, table_of, text
from mainstem.spark.sources.features import stream_reader
from mainstem.spark.sources.offsets import Offset, parse_offset
from mainstem.spark.sources.options import RecordingOptions, parse_options
from mainstem.spark.sources.recording import RecordingStreamReader, columns_read, whole_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from mainstem.spark.sources.background_recorder import BackgroundRecorder
    from mainstem.spark.sources.decoding import PayloadDecoder
    from mainstem.spark.sources.options import Names
    from mainstem.spark.sources.planning import Planner

log = logging.getLogger("mainstem.spark")

RUN = "run"
NOTHING_READ = Offset().as_json()


def _channel(value: str, name: str) -> str:
    if not value.startswith(("aeron:", "aeron-spy:")):
        raise ConfigurationError(
            f"{name} must be an Aeron channel such as aeron:udp?endpoint=localhost:20121 (got {value!r})"
        )
    return value


def _streams(value: str, name: str) -> tuple[int, ...]:
    if streams := integers(value, name):
        return streams
    raise ConfigurationError(f"{name} must be stream ids separated by commas, such as 1001 (got {value!r})")


@dataclass(frozen=True, kw_only=True)
class LiveOptions:
    """The options of ``mainstem.live`` besides those of ``mainstem.recording``, in the order of the documentation."""

    channel: str = option("channel", _channel, "an Aeron channel. Required")
    stream_ids: tuple[int, ...] = option("streamId", _streams, "stream ids, separated by commas. Required")
    driver_directory: str = option(
        "directory", text, "the media driver's directory", default="", shown="the user's default directory"
    )
    record_to: str = option(
        "recordTo",
        text,
        "**exactly once**: the recording stays in this directory, and a restarted query resumes from its checkpoint. While no "
        "query runs, the media driver holds the stream for the client liveness timeout (10 s by default). To bridge longer pauses, "
        "let `mainstem record` record into that directory; the query then only reads",
        default="",
    )
    scratch: str = option(
        "scratch",
        text,
        "without `recordTo`: where the stream is kept while the query runs. **At most once**: messages that were not committed "
        "when the query ended are lost, and a warning is logged. Segments are deleted as they are committed",
        default="",
        shown="the machine's temporary directory",
    )
    reading: RecordingOptions


def parse_live_options(options: Mapping[str, str]) -> LiveOptions:
    """Parse the options. Raises ConfigurationError with the option, its value and the accepted values."""
    texts = {name.lower(): value for name, value in options.items()}
    path = texts.pop("path", "")
    names = {each.name.lower() for each in table_of(LiveOptions).values()}
    own = {"channel": path, "streamid": ""} | {name: texts.pop(name) for name in names & texts.keys()}
    values = parsed(LiveOptions, "mainstem.live", own)
    values["scratch"] = values.get("scratch") or tempfile.gettempdir()
    reading = parse_options({**texts, "path": values.get("record_to") or values["scratch"]})
    return LiveOptions(**values, reading=reading)


class LiveStreamReader(RecordingStreamReader):
    """A stream reader for a background recorder's recordings. If they are temporary, an offset names the run that it belongs to."""

    def __init__(self, options: LiveOptions, names: Names, decoder: PayloadDecoder | None = None) -> None:
        super().__init__(options.reading, names, decoder)
        self._live = options
        self._run = "" if options.record_to else uuid.uuid4().hex
        self._recorder: BackgroundRecorder | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_run": "", "_recorder": None}

    def _planned(self) -> Planner:
        """Like ``RecordingStreamReader._planned``, but the first call starts the recorder."""
        if self._recorder is None:
            from mainstem.spark.sources.background_recorder import BackgroundRecorder, run_directory

            live = self._live
            where = Path(live.record_to) if live.record_to else run_directory(Path(live.scratch), self._run)
            self._recorder = BackgroundRecorder(
                where, live.channel, live.stream_ids, live.driver_directory, temporary=not live.record_to
            )
            self._options = replace(live.reading, path=(str(where),), stream_ids=frozenset(live.stream_ids))
        self._recorder.check()
        return super()._planned()

    def _outer(self, offset: dict[str, Any]) -> dict[str, Any]:
        return offset | {RUN: self._run} if self._run else offset

    def _own(self, offset: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the offset without its run, or None if it belongs to an earlier run, whose recording is gone."""
        if offset.get(RUN, "") != self._run:
            return None
        return {key: value for key, value in offset.items() if key != RUN}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._outer(super().initialOffset())

    def first_offset(self) -> dict[str, Any]:
        return self._outer(super().first_offset())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self._outer(super().latestOffset(self._own(start) or NOTHING_READ, limit))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._outer(super().reportLatestOffset())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = self._own(end)
        if until is None:
            self._planned()
            log.warning("a micro-batch of an earlier run is lost: mainstem.live without recordTo is at most once")
            return []
        return super().partitions(self._own(start) or NOTHING_READ, until)

    def commit(self, end: dict[str, Any]) -> None:
        offset = self._own(end)
        if self._run and self._recorder is not None and offset:
            self._recorder.purge(parse_offset(offset).positions)

    def stop(self) -> None:
        super().stop()
        if self._recorder is not None:
            self._recorder.close()


@documents(LiveOptions)
class LiveSource(DataSource):
    """``mainstem.live``: ``spark.readStream.format("mainstem.live").options(channel=..., streamId=...)``.

    It also accepts the options of ``mainstem.recording`` except ``path``.
    """

    # As in ``RecordingSource``.
    parallelism: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        return "mainstem.live"

    def schema(self) -> StructType:
        return whole_schema(parse_live_options(self.options).reading)

    def reader(self, schema: StructType) -> Any:  # noqa: ARG002
        raise ConfigurationError("a live channel has no end; use readStream, or read a recording of it")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = parse_live_options(self.options)
        parallelism = options.reading.parallelism or self.parallelism
        options = replace(options, reading=replace(options.reading, parallelism=parallelism))
        reader = LiveStreamReader(options, *columns_read(schema, options.reading))
        return stream_reader(reader, self.options, RecordingOptions)
