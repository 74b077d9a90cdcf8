"""Arrow IPC streams. Each message is one stream with any number of rows, or several with one schema."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import NoRowsError, decodes, reason_of, rescue
from mainstem.codecs.decoded import Decoded
from mainstem.codecs.exact import exact_array
from mainstem.codecs.inference import widest
from mainstem.codecs.limits import as_nullable, within_limits
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

# Views of strings and bytes, with the types that hold the same values.
VIEWS = {"string_view": "string", "binary_view": "binary"}


class ArrowIpc:
    """The codec for Arrow IPC streams. Columns may be widened within their kind. Columns that the schema lacks are rescued."""

    def __init__(self, **options: str) -> None:
        if options:
            raise ValueError(f"ArrowIpc has no option {min(options)!r}")

    @decodes
    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        with needs_extras():
            import pyarrow  # noqa: F401

        return _rows(_table(payload))

    def encode(self, row: dict[str, Any]) -> bytes:
        with needs_extras():
            import pyarrow as pa

        columns = {}
        for name, value in row.items():
            kind = widest([value])
            try:
                if kind is None:
                    raise ValueError(f"no column holds {type(value).__name__}")
                columns[name] = exact_array([value], kind)
            except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
                raise ConfigurationError(f"{name}: {error}") from None
        batch = pa.record_batch(columns)
        texts, reasons = rescue([row], batch.schema)
        if surplus := {**texts, **reasons}:
            raise ConfigurationError(f"no column holds {surplus[0]}")
        return self.encode_batch(batch)[0]

    def encode_batch(self, batch: pa.RecordBatch) -> list[bytes]:
        import pyarrow as pa

        payloads = []
        for i in range(batch.num_rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch.slice(i, 1))
            payloads.append(sink.getvalue().to_pybytes())
        return payloads

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """Return the fields of all messages, each in its widest type, or in its first type if none is the widest.

        Omits fields of types that Arrow cannot compute with.
        """
        import pyarrow as pa

        whole: dict[str, pa.Field] = {}
        is_found = False
        for payload in sample:
            with suppress(Exception):
                sent = [(item.name, _column_type(item.type)) for item in pa.ipc.open_stream(payload).schema]
                is_found = True
                for item in (pa.field(name, kind) for name, kind in sent if kind is not None):
                    before = whole.setdefault(item.name, item)
                    with suppress(pa.ArrowException):
                        pair = [pa.schema([before]), pa.schema([item])]
                        whole[item.name] = pa.unify_schemas(pair, promote_options="permissive").field(0)
        if not is_found:
            raise NoRowsError(sample)
        return pa.schema(list(whole.values()))

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """Decode all rows of all messages that fit the schema."""
        import pyarrow as pa

        nullable = as_nullable(schema)
        tables: list[Any] = []
        origins: list[int] = []
        problems: dict[int, str] = {}
        rescued: dict[int, str] = {}
        for i, payload in enumerate(payloads):
            try:
                message = _table(payload)
                table = _conformed(message, nullable)
                surplus = [name for name in message.column_names if _has_surplus(message, name, nullable)]
                texts, reasons = rescue(_rows(message.select(surplus)), nullable) if surplus else ({}, {})
                if reasons:
                    raise ValueError(min(reasons.values()))
            except Exception as error:
                problems[i] = reason_of(error)
                continue
            rescued |= {len(origins) + row: text for row, text in texts.items()}
            tables.append(table)
            origins += [i] * message.num_rows
        whole = pa.concat_tables(tables) if tables else nullable.empty_table()
        columns = [column.combine_chunks() for column in whole.columns]
        return within_limits(Decoded(columns, origins, problems, rescued), schema)


def _table(payload: bytes) -> pa.Table:
    import pyarrow as pa

    try:
        file = pa.BufferReader(payload)
        streams = [pa.ipc.open_stream(file).read_all()]
        while file.tell() < len(payload):
            streams.append(pa.ipc.open_stream(file).read_all())
        if any(each.schema != streams[0].schema for each in streams):
            raise ValueError(f"the message is {len(streams)} Arrow IPC streams with different schemas")
        table = pa.concat_tables(streams)
        table.validate(full=True)
    except pa.ArrowException as error:
        raise ValueError(f"the message is not an Arrow IPC stream: {error}") from None
    if len(set(table.column_names)) < table.num_columns:
        raise ValueError("two columns have the same name")
    return table


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def _conformed(message: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the schema's columns. Those that the message lacks are null. Raises ValueError for a type of another kind."""
    import pyarrow as pa

    names = set(message.column_names)
    columns = []
    for item in schema:
        if item.name not in names:
            columns.append(pa.nulls(message.num_rows, item.type))
            continue
        column = message.column(item.name)
        if str(column.type) in VIEWS:
            # Casting a view trusts offsets that the validation does not check, so go through Python objects.
            column = pa.chunked_array([pa.array(column.to_pylist(), pa.type_for_alias(VIEWS[str(column.type)]))])
        try:
            if _column_type(column.type) is None:
                raise ValueError(f"{column.type} is not of type {item.type}")
            columns.append(pa.chunked_array([_cast(chunk, item.type) for chunk in column.chunks], item.type))
        except (pa.ArrowInvalid, ValueError) as error:
            raise ValueError(f"{item.name}: {error}") from None
    return pa.table(columns, schema=schema)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values to a type. The members of a struct are found by name. Raises ValueError for a type of another kind."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as is_

    if _is_kept(array.type, kind):
        return array.cast(kind)
    if is_.is_struct(array.type) and is_.is_struct(kind):
        sent = {item.name: k for k, item in enumerate(array.type)}
        if len(sent) == array.type.num_fields:
            members = [
                _cast(array.field(sent[item.name]), item.type) if item.name in sent else pa.nulls(len(array), item.type)
                for item in kind
            ]
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
    if _is_list(array.type) and (is_.is_list(kind) or is_.is_large_list(kind)):
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        offsets = pc.cumulative_sum(pa.concat_arrays([pa.array([0], lengths.type), lengths]))
        made = (pa.ListArray if is_.is_list(kind) else pa.LargeListArray).from_arrays
        integer = pa.int32() if is_.is_list(kind) else pa.int64()
        items = _cast(pc.list_flatten(array), kind.value_type)
        return made(offsets.cast(integer), items, type=kind, mask=array.is_null())
    raise ValueError(f"{array.type} is not of type {kind}")


def _has_surplus(message: pa.Table, name: str, schema: pa.Schema) -> bool:
    """Return whether a column of the message, or a member of its structs, has no place in the schema."""
    if name not in schema.names:
        return True
    return _is_larger(message.schema.field(name).type, schema.field(name).type)


def _is_larger(sent: pa.DataType, kind: pa.DataType) -> bool:
    import pyarrow.types as is_

    if is_.is_struct(sent) and is_.is_struct(kind):
        own = {item.name: item.type for item in kind}
        return any(item.name not in own or _is_larger(item.type, own[item.name]) for item in sent)
    return _is_list(sent) and _is_list(kind) and _is_larger(sent.value_type, kind.value_type)


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow.types as is_

    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def _column_type(kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.types as is_

    if is_.is_struct(kind):
        fields = [(item.name, _column_type(item.type)) for item in kind]
        return pa.struct(fields) if fields and all(each for _, each in fields) else None
    if is_.is_map(kind):
        parts = _column_type(kind.key_type), _column_type(kind.item_type)
        return pa.map_(*parts) if all(parts) else None
    if _is_list(kind):
        item = _column_type(kind.value_type)
        return item and pa.list_(item)
    if is_.is_dictionary(kind):
        return _column_type(kind.value_type)
    if is_.is_timestamp(kind) and kind.tz is not None:
        # The instant is the same in any time zone.
        return pa.timestamp(kind.unit, "UTC")
    if is_.is_decimal(kind) and abs(kind.scale) > kind.precision:
        # For a scale of millions, Arrow would read beyond its tables of powers.
        return None
    if str(kind) in VIEWS:
        return pa.type_for_alias(VIEWS[str(kind)])
    plain = is_.is_null, is_.is_boolean, is_.is_integer, is_.is_floating, is_.is_decimal, is_.is_temporal
    texts = is_.is_string, is_.is_large_string, is_.is_binary, is_.is_large_binary, is_.is_fixed_size_binary
    return kind if any(each(kind) for each in (*plain, *texts)) else None


def _is_kept(sent: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a cast between two types keeps every value that it accepts."""
    import pyarrow.types as is_

    if sent == kind or is_.is_null(sent):
        return True
    if is_.is_struct(sent) and is_.is_struct(kind):
        # Arrow's cast is by position.
        has_same_names = [item.name for item in sent] == [item.name for item in kind]
        return has_same_names and all(_is_kept(a.type, b.type) for a, b in zip(sent, kind, strict=True))
    if _is_list(sent) and _is_list(kind):
        return _is_kept(sent.value_type, kind.value_type)
    if is_.is_map(sent) and is_.is_map(kind):
        return _is_kept(sent.key_type, kind.key_type) and _is_kept(sent.item_type, kind.item_type)
    if is_.is_dictionary(sent):
        return _is_kept(sent.value_type, kind.value_type if is_.is_dictionary(kind) else kind)
    if is_.is_floating(sent):
        # A cast to a decimal rounds, but a cast to an integer does not.
        return bool(is_.is_integer(kind) or (is_.is_floating(kind) and sent.bit_width <= kind.bit_width))
    if is_.is_decimal(sent):
        return bool(is_.is_decimal(kind) or is_.is_integer(kind))
    if is_.is_timestamp(sent) and is_.is_timestamp(kind):
        return (sent.tz is None) == (kind.tz is None)
    kinds = (
        lambda each: is_.is_integer(each) or is_.is_floating(each) or is_.is_decimal(each),
        lambda each: str(each) in ("string", "large_string", "string_view"),
        lambda each: "binary" in str(each),
        is_.is_date, is_.is_time, is_.is_duration,
    )  # fmt: skip
    return any(each(sent) and each(kind) for each in kinds)
