"""The options of ``mainstem.capture``, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mainstem.capture import schema
from mainstem.capture.planning import PART_BYTES, ROWS, FrameSelection
from mainstem.capture.ports import parse_aeron_ports, parse_ports
from mainstem.errors import ConfigurationError
from mainstem.spark.sources.option_values import MAX_TRIGGER_DELAY_NS, flag, positive, trigger_options
from mainstem.store.options import is_store_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

KNOWN = {
    "path", "aeronports", "bymuxports", "jmuxports", "payload", "partitionbytes", "minpartitions", "rowsperbatch",
    "indexdirectory", "maxbytespertrigger", "failondataloss", "minbytespertrigger", "maxtriggerdelay",
}  # fmt: skip
MAX_ROWS = 1 << 20
MIN_ROWS = 256  # below it a batch costs more than its rows


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """The options of ``mainstem.capture``. Names are compared without regard to case, as Spark does."""

    path: str
    store_options: dict[str, str] = field(default_factory=dict, repr=False)
    aeron_ports: tuple[int, ...] | None = None
    bymux_ports: tuple[int, ...] = ()
    jmux_ports: tuple[int, ...] = ()
    payload: bool = False
    partition_bytes: int = PART_BYTES
    min_partitions: int = 1
    rows_per_batch: int = ROWS
    index_directory: str | None = None
    max_bytes: int | None = None
    min_bytes: int | None = None
    max_trigger_delay_ns: int = MAX_TRIGGER_DELAY_NS
    fail_on_data_loss: bool = True

    def wanted(self, fields: StructType) -> FrameSelection:
        """What is read for a schema. Raises ConfigurationError for a column that there is not, or of another type."""
        types = {column.name: column.type for column in schema.columns(payload=True)}
        for item in fields.fields:
            if item.name not in types:
                raise ConfigurationError(f"mainstem.capture has no column {item.name!r}; it has {', '.join(types)}")
            if item.dataType.simpleString() != types[item.name]:
                raise ConfigurationError(
                    f"column {item.name!r} is of type {types[item.name]}, not {item.dataType.simpleString()}"
                )
        return self.selection(item.name for item in fields.fields)

    def selection(self, names: Iterable[str]) -> FrameSelection:
        """The same of columns that are known to be there."""
        return FrameSelection(
            names=tuple(names),
            aeron_ports=self.aeron_ports,
            bymux_ports=self.bymux_ports,
            jmux_ports=self.jmux_ports,
            rows=self.rows_per_batch,
            count_passed=True,
        )


def parse_options(options: Mapping[str, str]) -> CaptureOptions:
    """Checked options. Raises ConfigurationError that names the option, its value and what would be accepted."""
    store_options = {key: value for key, value in options.items() if is_store_option(key)}
    texts = {key.lower(): value for key, value in options.items() if key not in store_options}
    if unknown := sorted(set(texts) - KNOWN):
        raise ConfigurationError(f"mainstem.capture has no option {unknown[0]!r}; it has {', '.join(sorted(KNOWN))}")
    if not texts.get("path"):
        raise ConfigurationError("mainstem.capture needs the option 'path': a capture, a folder of them, or a pattern")
    rows = positive(texts, "rowsPerBatch", ROWS)
    if not MIN_ROWS <= rows <= MAX_ROWS:
        raise ConfigurationError(f"rowsPerBatch: {rows} is not between {MIN_ROWS} and {MAX_ROWS}")
    min_bytes, max_trigger_delay_ns = trigger_options(texts)
    return CaptureOptions(
        path=texts["path"],
        store_options=store_options,
        aeron_ports=parse_aeron_ports(texts.get("aeronports", "auto")),
        bymux_ports=parse_ports(texts.get("bymuxports", ""), "bymuxPorts"),
        jmux_ports=parse_ports(texts.get("jmuxports", ""), "jmuxPorts"),
        payload=flag(texts, "payload", False),
        partition_bytes=positive(texts, "partitionBytes", PART_BYTES),
        min_partitions=positive(texts, "minPartitions", 1),
        rows_per_batch=rows,
        index_directory=texts.get("indexdirectory"),
        max_bytes=positive(texts, "maxBytesPerTrigger", None),
        min_bytes=min_bytes,
        max_trigger_delay_ns=max_trigger_delay_ns,
        fail_on_data_loss=flag(texts, "failOnDataLoss", True),
    )
