"""JSON lines, CSV and MessagePack."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from mainstem.spark.parsers.base import Parsed, RowParser
from mainstem.spark.parsers.types import rescue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

# Where Arrow refuses some messages they are cut into pieces until so few are left, which are read one by one.
FEWEST_AT_ONCE = 128
PIECES = 32
# Whole numbers up to here are exact as floating point.
EXACT_FLOAT = 2.0**53


class JsonLines(RowParser):
    """A message is a JSON object, or several, each on a line of its own.

    Many messages are read at once by Arrow's parser, which is strict about types; where it refuses any, those around it are
    read one by one. The rows do not depend on which way they were read.
    """

    def rows(self, payload: bytes) -> Iterator[dict[str, Any]]:
        """A row for each line that is not empty."""
        for line in payload.splitlines():
            if line.strip():
                yield _object(line)

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Parsed:
        """As ``RowParser``, many messages at once."""
        import pyarrow as pa

        parts = list(self._parts(payloads, 0, schema))
        whole = Parsed([], [])
        for first, part in parts:
            whole.rescued |= {len(whole.origins) + row: text for row, text in part.rescued.items()}
            whole.problems |= {first + message: text for message, text in part.problems.items()}
            whole.origins += [first + message for message in part.origins]
        for i, item in enumerate(schema):
            chunks = pa.chunked_array([part.columns[i] for _, part in parts], item.type)
            whole.columns.append(chunks.combine_chunks())
        return whole

    def _parts(self, payloads: Sequence[bytes], first: int, schema: pa.Schema) -> Iterator[tuple[int, Parsed]]:
        count = len(payloads)
        if count > FEWEST_AT_ONCE:
            part = self._at_once(payloads, schema)
            if part is not None:
                yield first, part
                return
            size = max(-(-count // PIECES), FEWEST_AT_ONCE)
            for begin in range(0, count, size):
                yield from self._parts(payloads[begin : begin + size], first + begin, schema)
        else:
            yield first, super().parse(payloads, schema)

    def _at_once(self, payloads: Sequence[bytes], schema: pa.Schema) -> Parsed | None:
        """All the messages by Arrow's parser; None where it refuses one, or would read it in another way than ``rows``."""
        import pyarrow as pa

        origins: list[int] = []
        lines: list[bytes] = []
        for i, payload in enumerate(payloads):
            for line in payload.splitlines():
                if text := line.strip():
                    # With these ends, as many rows as lines means one object a line.
                    if text[0] != 0x7B or text[-1] != 0x7D:
                        return None
                    origins.append(i)
                    lines.append(text)
        if not lines:
            return None
        data = b"\n".join(lines)
        try:
            data.decode()
            table = self._read(data, schema)
            if table.num_rows != len(lines):
                return None
            columns = [self._converted(table.column(item.name).combine_chunks(), item.type) for item in schema]
        except (ValueError, pa.ArrowException):
            return None
        extra = table.column_names[len(schema) :]
        rescued: dict[int, str] = {}
        if extra:
            # Arrow has inferred types for them; the text is what is kept.
            holds = [set(table.column(name).is_valid().to_numpy().nonzero()[0].tolist()) for name in extra]
            indices = sorted(set().union(*holds))
            texts = rescue([json.loads(lines[index]) for index in indices], schema)
            rescued = {indices[row]: text for row, text in texts.items()}
        return Parsed(columns, origins, {}, rescued)

    def _read(self, data: bytes, schema: pa.Schema) -> pa.Table:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        as_text = [pa.field(item.name, pa.string()) if _is_text(item.type) else item for item in schema]
        reading = arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1)

        def read(unexpected: str) -> pa.Table:
            parsing = arrow_json.ParseOptions(explicit_schema=pa.schema(as_text), unexpected_field_behavior=unexpected)
            return arrow_json.read_json(io.BytesIO(data), reading, parsing)

        try:
            return read("error")
        except pa.ArrowInvalid as error:
            if "unexpected field" not in str(error):
                raise
        return read("infer")

    def _converted(self, column: Any, kind: Any) -> Any:
        import pyarrow as pa

        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
        if _is_text(kind):
            return column.cast(kind)
        # Fields of a struct that the schema lacks change its type; numbers that may have been rounded are read again.
        if column.type != kind or _may_be_rounded(column):
            raise ValueError("read one by one")
        return column

    def column(self, values: list[Any], kind: Any) -> Any:
        """JSON has no times: they are texts, and become the type of the schema."""
        import pyarrow as pa

        if _is_text(kind):
            return pa.array([None if v is None else str(v) for v in values], pa.string()).cast(kind)
        return super().column(values, kind)


def _object(line: bytes) -> dict[str, Any]:
    value = _DECODER.decode(line.decode())
    if not isinstance(value, dict):
        raise ValueError(f"a line is a JSON object, not {type(value).__name__}")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return fields


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates)


def _is_text(kind: Any) -> bool:
    """Whether values of a type are texts in JSON."""
    import pyarrow as pa

    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


def _may_be_rounded(column: Any) -> bool:
    """Whether there is floating point among the values that another number may have been read as."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.greater_equal(pc.abs(column), pa.scalar(EXACT_FLOAT, kind))).as_py())
    if pa.types.is_struct(kind):
        return any(_may_be_rounded(column.field(i)) for i in range(kind.num_fields))
    return pa.types.is_list(kind) and _may_be_rounded(column.values)


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
