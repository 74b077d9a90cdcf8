"""The options of ``mainstem ingest`` and ``mainstem compact``, and the columns of the tables besides the codec's.

Messages name an option by its field in backticks. The command line replaces it by the option's name there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - the command line reads the annotations
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError
from mainstem.spark.formats.base import DEFAULT_FILE_SIZE
from mainstem.spark.sources.options import TIMESTAMPS, source_options
from mainstem.store import open_store
from mainstem.store.open_store import scheme_of

if TYPE_CHECKING:
    from mainstem.spark.sources.options import RecordingOptions

META = ("date", "stream_id", "recording_id", "session_id", "position", "recorded_at", "problem")
META_DDL = "date date, stream_id int, recording_id bigint, session_id int, position bigint, recorded_at timestamp, problem string"
RESCUE_DDL = "rescued string, payload binary"
PARTITIONS = ("date", "stream_id")
OBSERVED = "ingested"
# Stored in the table's directory. Readers of the table ignore names that start with an underscore.
CHECKPOINT, SCHEMA_FILE, QUERY_FILE = "_checkpoint", "_schema.json", "_query.json"
FORMATS = ("parquet", "delta", "iceberg")
MIN_FILE_SIZE = 1 << 10
NO_COMPACTION = (
    "a directory of Parquet files has no commits, so readers would miss rows or see them twice while files are replaced; use "
    "`format=delta` or iceberg"
)


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """A table. ``out`` is a directory or URL: of the table or, for Iceberg, of its warehouse."""

    out: Path | str = ""
    format: str = "parquet"
    table: str = ""
    catalog: str = ""
    catalog_options: dict[str, str] = field(default_factory=dict)
    store_options: dict[str, str] = field(default_factory=dict)
    target_file_size: int = DEFAULT_FILE_SIZE

    def check(self) -> None:
        if self.format not in FORMATS:
            raise ConfigurationError(f"`format` must be one of {', '.join(FORMATS)} (got {self.format!r})")
        if not str(self.out) and not (self.catalog or self.catalog_options):
            raise ConfigurationError("`out` is required: the directory or URL of the table")
        if self.format == "iceberg" and not self.table:
            raise ConfigurationError(
                "`table` is required: the name of the Iceberg table in its catalog, such as sea.tides"
            )
        if self.format != "iceberg" and (self.table or self.catalog or self.catalog_options):
            raise ConfigurationError("`table` and `catalog` need `format=iceberg`")
        if self.target_file_size < MIN_FILE_SIZE:
            raise ConfigurationError(
                f"`target_file_size` must be at least {MIN_FILE_SIZE} bytes (got {self.target_file_size})"
            )


@dataclass(frozen=True, kw_only=True)
class IngestOptions(TableOptions):
    """The input and the table of an ingest. ``source`` is a location of recordings, or an Aeron channel (with ``streams``)."""

    source: str
    codec: str = ""
    codec_options: dict[str, str] = field(default_factory=dict)
    schema: str = ""
    streams: tuple[int, ...] = ()
    record_to: str = ""
    driver_directory: str = ""
    follow: bool = False
    trigger_interval: float = 1.0
    source_options: dict[str, str] = field(default_factory=dict)
    timestamp_from: str = ""
    checkpoint: str = ""
    evolve: bool = False
    append: bool = False
    compact_every: int = 0

    @property
    def is_live(self) -> bool:
        return self.source.startswith(("aeron:", "aeron-spy:"))

    @property
    def recordings(self) -> str:
        """The location of the recordings; empty for a live channel without a recording."""
        return self.record_to if self.is_live else self.source

    @property
    def reading(self) -> RecordingOptions:
        return source_options(self.recordings, {} if self.is_live else self.source_options)

    @property
    def has_event_time(self) -> bool:
        """Whether the source adds the column ``timestamp``."""
        return self.timestamp_from in TIMESTAMPS

    @property
    def keeps_null_dates(self) -> bool:
        """Whether rows without a time are kept, because publishers set the time and may leave it out."""
        return self.timestamp_from not in ("", "recorded_at")

    @property
    def checkpoint_location(self) -> str:
        """Spark's checkpoint. By default it is in the table's directory, where readers of the table ignore it."""
        # A warehouse can hold several tables, so the path includes the table's name.
        return self.checkpoint or str(self.local_directory / CHECKPOINT / self.table)

    @property
    def has_local_checkpoint(self) -> bool:
        """Whether the checkpoint is in a directory of this host, not in a file system of Hadoop's."""
        return scheme_of(self.checkpoint) in ("", "file")

    @property
    def locked_directories(self) -> list[Path]:
        """The directories that only one query may use at a time."""
        checkpoint = open_store(self.checkpoint_location).local_path() if self.has_local_checkpoint else None
        table = self.local_directory if self.format == "parquet" else None
        return [each for each in (checkpoint, table) if each is not None]

    @property
    def local_directory(self) -> Path:
        store = open_store(self.out)
        path = store.local_path()
        assert path is not None
        return path

    @property
    def is_local(self) -> bool:
        return bool(str(self.out)) and scheme_of(str(self.out)) in ("", "file")

    def check(self) -> None:
        super().check()
        self._check_place()
        if self.is_live and not self.streams:
            raise ConfigurationError("`streams` is required when reading from an Aeron channel")
        if self.is_live and not self.follow:
            raise ConfigurationError("reading from a live channel never ends; add `follow`")
        if self.schema and not self.codec:
            raise ConfigurationError("`schema` lists the columns of `codec`, which is missing")
        if self.timestamp_from and not self.has_event_time and not self.codec:
            names = ", ".join(TIMESTAMPS)
            raise ConfigurationError(
                f"`timestamp_from`: {self.timestamp_from!r} must be one of {names}, or with `codec` a field of the codec"
            )

    def _check_place(self) -> None:
        if self.format == "parquet":
            if not self.is_local:
                raise ConfigurationError(
                    f"`out`: {self.out}: Parquet is written to a local directory; use `format=delta` or iceberg for a store"
                )
            if not self.has_local_checkpoint:
                raise ConfigurationError(
                    f"`checkpoint`: {self.checkpoint}: with `format=parquet`, it must be a local directory, like the table"
                )
            if self.append:
                raise ConfigurationError(
                    "`append` needs `format=delta` or `format=iceberg`: a directory of Parquet files belongs to one checkpoint"
                )
            if self.compact_every:
                raise ConfigurationError(f"`compact_every`: {NO_COMPACTION}")
        elif not self.is_local and not self.checkpoint:
            raise ConfigurationError(
                f"`checkpoint` is required: a local directory for Spark's progress, as `out` {str(self.out)!r} is a store"
            )
