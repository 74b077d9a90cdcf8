"""SBE messages as rows: a table is one message of the schema."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.codecs.base import RowCodec
from mainstem.codecs.sbe_schema import Block, SbeSchema, Type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


class Sbe(RowCodec):
    """Options: ``xml``, the file of the schema, and ``message``, the one to read; others are problems.

    Groups become lists of structs, composites structs, enums texts, sets lists of texts, and variable-length data binary.
    """

    def __init__(self, *, xml: str = "", message: str = "", **options: str) -> None:
        super().__init__(**options)
        if not xml:
            raise ValueError("the option xml names the file of the schema")
        self._xml = Path(xml).read_text()
        names = [block.name for block in self._schema.messages.values()]
        if not message and len(names) != 1:
            raise ValueError(f"the option message says which of {', '.join(names)}")
        self._message = message or names[0]
        if self._message not in names:
            raise ValueError(f"the schema has no message {message!r}; it has {', '.join(names)}")

    @cached_property
    def _schema(self) -> SbeSchema:
        return SbeSchema(self._xml)

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        decoded = self._schema.decode(payload)
        if decoded is None or decoded[0].name != self._message:
            name = "a message that the schema lacks" if decoded is None else f"the message {decoded[0].name!r}"
            raise ValueError(f"{name}, not {self._message!r}")
        return [decoded[1]]

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:  # noqa: ARG002
        import pyarrow as pa

        block = next(block for block in self._schema.messages.values() if block.name == self._message)
        return pa.schema(_fields(block))


def _fields(block: Block) -> list[Any]:
    import pyarrow as pa

    fields = [pa.field(name, _arrow(kind)) for name, _, kind in block.fields]
    fields += [pa.field(group.name, pa.list_(pa.struct(_fields(group)))) for group in block.groups]
    fields += [pa.field(name, pa.binary()) for name, _ in block.data]
    return fields


# Spark has no unsigned integers: each goes into the next larger one.
_NUMBERS = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "float": "float32",
    "double": "float64",
}


def _arrow(kind: Type) -> Any:
    import pyarrow as pa

    if kind.members:
        return pa.struct([pa.field(name, _arrow(member)) for name, _, member in kind.members])
    if kind.is_set:
        return pa.list_(pa.string())
    if kind.names or kind.primitive == "char" or isinstance(kind.constant, str):
        return pa.string()
    # 64 bits without a sign fit no integer of Spark's.
    number = pa.decimal128(20, 0) if kind.primitive == "uint64" else getattr(pa, _NUMBERS[kind.primitive])()
    return pa.list_(number) if kind.length > 1 and kind.constant is None else number
