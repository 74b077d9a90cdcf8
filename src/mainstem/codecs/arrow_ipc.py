"""Arrow IPC streams: a message is a stream of its own, with its schema and any number of rows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import Decoded
from mainstem.codecs.types import rescue, widest
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class ArrowIpc:
    """Columns come over as they are, or in a wider type of the same kind; those that the schema does not name are rescued."""

    def __init__(self, **options: str) -> None:
        if options:
            raise ValueError(f"ArrowIpc has no option {min(options)!r}")

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        """All rows of the stream."""
        with needs_extras():
            import pyarrow as pa

        rows: list[dict[str, Any]] = pa.ipc.open_stream(payload).read_all().to_pylist(maps_as_pydicts="strict")
        return rows

    def encode(self, row: dict[str, Any]) -> bytes:
        """A stream of one row; each column has the type that its value needs."""
        with needs_extras():
            import pyarrow as pa

        try:
            columns = {name: pa.array([value], widest(name, [value])) for name, value in row.items()}
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise ConfigurationError(str(error)) from None
        return self.encode_batch(pa.record_batch(columns))[0]

    def encode_batch(self, batch: pa.RecordBatch) -> list[bytes]:
        """A stream for each row, with the types of the batch."""
        import pyarrow as pa

        payloads = []
        for i in range(batch.num_rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch.slice(i, 1))
            payloads.append(sink.getvalue().to_pybytes())
        return payloads

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """The fields of all messages, each in its widest type."""
        import pyarrow as pa

        schemas = []
        for payload in sample:
            with suppress(pa.ArrowException):
                schemas.append(pa.ipc.open_stream(payload).schema.remove_metadata())
        if not schemas:
            raise ValueError("there is no message to take the schema from")
        return pa.unify_schemas(schemas, promote_options="permissive")

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """All rows of all messages that can be read as that schema."""
        import pyarrow as pa

        tables: list[Any] = []
        origins: list[int] = []
        problems: dict[int, str] = {}
        rescued: dict[int, str] = {}
        for i, payload in enumerate(payloads):
            try:
                message = pa.ipc.open_stream(payload).read_all()
                table = message.select(schema.names)
                for sent, item in zip(table.schema, schema, strict=True):
                    if not _same_kind(sent.type, item.type):
                        raise ValueError(f"{item.name}: {sent.type} is no {item.type}")
                table = table.cast(schema)
            except Exception as error:
                problems[i] = f"{type(error).__name__}: {error}"
                continue
            rest = message.drop_columns(schema.names)
            if rest.num_columns:
                texts = rescue(rest.to_pylist(), pa.schema([]))
                rescued |= {len(origins) + row: text for row, text in texts.items()}
            tables.append(table)
            origins += [i] * table.num_rows
        whole = pa.concat_tables(tables) if tables else schema.empty_table()
        return Decoded([column.combine_chunks() for column in whole.columns], origins, problems, rescued)


def _same_kind(sent: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a cast between two types keeps every value that it does not refuse."""
    import pyarrow.types as is_

    kinds = (
        lambda each: is_.is_integer(each) or is_.is_floating(each) or is_.is_decimal(each),
        lambda each: is_.is_string(each) or is_.is_large_string(each),
        lambda each: is_.is_binary(each) or is_.is_large_binary(each) or is_.is_fixed_size_binary(each),
        is_.is_timestamp, is_.is_date, is_.is_time, is_.is_duration, is_.is_list, is_.is_struct, is_.is_dictionary,
    )  # fmt: skip
    narrows = is_.is_floating(sent) and is_.is_floating(kind) and sent.bit_width > kind.bit_width
    return sent == kind or is_.is_null(sent) or (not narrows and any(each(sent) and each(kind) for each in kinds))
