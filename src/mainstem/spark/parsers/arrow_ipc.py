"""Arrow IPC streams: a message is a stream of its own, with its schema and any number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.spark.parsers.base import Parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class ArrowIpc:
    """Columns come over as they are; those that the schema does not name are left out."""

    def __init__(self, **options: str) -> None:
        if options:
            raise ValueError(f"ArrowIpc has no option {min(options)!r}")

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """That of the first message."""
        import pyarrow as pa

        if not sample:
            raise ValueError("there is no message to take the schema from")
        return pa.ipc.open_stream(sample[0]).schema

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Parsed:
        """All rows of all messages that can be read as that schema."""
        import pyarrow as pa

        tables: list[Any] = []
        origins: list[int] = []
        problems: dict[int, str] = {}
        for i, payload in enumerate(payloads):
            try:
                table = pa.ipc.open_stream(payload).read_all().select(schema.names).cast(schema)
            except Exception as error:
                problems[i] = f"{type(error).__name__}: {error}"
                continue
            tables.append(table)
            origins += [i] * table.num_rows
        whole = pa.concat_tables(tables) if tables else schema.empty_table()
        return Parsed([column.combine_chunks() for column in whole.columns], origins, problems)
