"""JSON lines, CSV and MessagePack."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

from mainstem.spark.parsers.base import RowParser

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa


class JsonLines(RowParser):
    """A message is a JSON object, or several, each on a line of its own."""

    def rows(self, payload: bytes) -> Iterator[dict[str, Any]]:
        """A row for each line that is not empty."""
        for line in payload.splitlines():
            if line.strip():
                value = json.loads(line)
                if not isinstance(value, dict):
                    raise ValueError(f"a line is a JSON object, not {type(value).__name__}")
                yield value

    def column(self, values: list[Any], kind: Any) -> Any:
        """JSON has no times: they are texts, and become the type of the schema."""
        import pyarrow as pa

        if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            return pa.array([None if v is None else str(v) for v in values], pa.string()).cast(kind)
        return pa.array(values, kind)


class Csv(RowParser):
    """A message is a line of comma-separated values, or several. Options: ``delimiter``, and ``columns``, the names in order.

    Without ``columns`` they are those of the schema.
    """

    def __init__(self, *, delimiter: str = ",", columns: str = "", **options: str) -> None:
        super().__init__(**options)
        self._delimiter = delimiter
        self._names = [name.strip() for name in columns.split(",") if name.strip()]

    def rows(self, payload: bytes) -> Iterator[dict[str, Any]]:
        """A row for each line."""
        lines = csv.reader(payload.decode().splitlines(), delimiter=self._delimiter, strict=True)
        for values in lines:
            if len(values) != len(self._names):
                raise ValueError(f"a line has {len(values)} values, not {len(self._names)}")
            yield dict(zip(self._names, (value or None for value in values), strict=True))

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """What Arrow's own reader of CSV finds in the sample."""
        import io

        from pyarrow import csv as arrow_csv

        if not self._names or not sample:
            raise ValueError("CSV needs a schema, or the option columns and a message to take the types from")
        text = b"\n".join(sample)
        reading = arrow_csv.ReadOptions(column_names=self._names)
        parsing = arrow_csv.ParseOptions(delimiter=self._delimiter)
        return arrow_csv.read_csv(io.BytesIO(text), reading, parsing).schema

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Any:
        """As ``RowParser``; without names of its own the columns are the schema's."""
        self._names = self._names or list(schema.names)
        return super().parse(payloads, schema)

    def column(self, values: list[Any], kind: Any) -> Any:
        """Every value is a text first."""
        import pyarrow as pa

        return pa.array(values, pa.string()).cast(kind)


class MessagePack(RowParser):
    """A message is a MessagePack map. Needs ``mainstem[serialisation]``."""

    def rows(self, payload: bytes) -> Iterator[dict[str, Any]]:
        """The map's row."""
        import msgspec

        value = msgspec.msgpack.decode(payload)
        if not isinstance(value, dict):
            raise ValueError(f"a message is a map, not {type(value).__name__}")
        yield value
