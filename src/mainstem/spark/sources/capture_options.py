"""The options of ``mainstem.capture``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem.capture import schema
from mainstem.capture.planning import ROWS, FrameSelection
from mainstem.capture.ports import parse_aeron_ports, parse_ports
from mainstem.errors import ConfigurationError
from mainstem.spark.option_table import (
    TriggerOptions,
    check_trigger,
    flag,
    option,
    parsed,
    positive,
    text,
)
from mainstem.spark.sources.decoding import CodecOptions, check_codec, check_columns, split_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

MAX_ROWS = 1 << 20
MIN_ROWS = 256  # with fewer, a batch costs more than its rows


def _rows(value: str, name: str) -> int:
    rows = positive(value, name)
    if not MIN_ROWS <= rows <= MAX_ROWS:
        raise ConfigurationError(f"{name} must be between {MIN_ROWS} and {MAX_ROWS} (got {rows})")
    return rows


@dataclass(frozen=True, kw_only=True)
class CaptureOptions(TriggerOptions, CodecOptions):
    """The options of ``mainstem.capture``, in the order of the documentation."""

    path: str = option(
        "path", text, "a capture, a directory of captures, or a pattern; or a URL of one. Required", default=""
    )
    store_options: dict[str, str] = field(default_factory=dict, repr=False)
    aeron_ports: tuple[int, ...] | None = option(
        "aeronPorts",
        lambda value, _: parse_aeron_ports(value),
        "UDP ports that carry Aeron, such as `40123,40124`; `none`; or `auto`: datagrams on any port that consist of valid Aeron"
        " frames",
        default="auto",
    )
    bymux_ports: tuple[int, ...] = option(
        "bymuxPorts",
        parse_ports,
        "TCP ports of servers. bymux cannot be recognized by its bytes, so its ports must be listed",
        default="",
        shown="none",
    )
    jmux_ports: tuple[int, ...] = option(
        "jmuxPorts", parse_ports, "TCP ports of Jmux servers", default="", shown="none"
    )
    payload: bool = option("payload", flag, "whether there is a column `payload`", default="false")
    partition_bytes: int = option(
        "partitionBytes", positive, "the bytes of a file that a task reads", default="32m", tuning=True
    )
    min_partitions: int = option(
        "minPartitions", positive, "the minimum number of partitions, over all files", default="1", tuning=True
    )
    rows_per_batch: int = option(
        "rowsPerBatch", _rows, "rows of an Arrow batch, from 256 to 1048576", default=str(ROWS), tuning=True
    )
    index_directory: str | None = option(
        "indexDirectory",
        text,
        "where to store frame indexes; indexes of URLs are only stored if it is set",
        shown="beside the file",
        tuning=True,
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        flag,
        "streaming: fail if a file of the checkpoint was replaced; `false` logs it and reads the new file from the beginning",
        default="true",
    )

    def wanted(self, fields: StructType) -> FrameSelection:
        """Return the columns to read for a schema. Raises ConfigurationError for an unknown column or a wrong type."""
        check_columns("mainstem.capture", fields, {column.name: column.type for column in schema.columns(payload=True)})
        return FrameSelection(
            names=tuple(fields.names),
            aeron_ports=self.aeron_ports,
            bymux_ports=self.bymux_ports,
            jmux_ports=self.jmux_ports,
            rows=self.rows_per_batch,
            count_skipped=True,
        )


def parse_options(options: Mapping[str, str]) -> CaptureOptions:
    """Parse the options. Raises ConfigurationError with the option, its value and the accepted values."""
    texts, store, codec = split_options(options)
    values = parsed(CaptureOptions, "mainstem.capture", texts)
    made = CaptureOptions(store_options=store, codec_options=codec, **values)
    if not made.path:
        raise ConfigurationError(
            "mainstem.capture needs the option 'path': a capture, a directory of them, or a pattern"
        )
    check_trigger(texts, made)
    check_codec(made)
    return made
