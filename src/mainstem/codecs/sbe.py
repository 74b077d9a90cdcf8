"""The codec for SBE messages. It reads one message type of a schema."""

from __future__ import annotations

import codecs
import struct
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from mainstem.codecs.base import RowCodec, decodes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree.ElementTree import Element

    import pyarrow as pa


# -- schemas of Simple Binary Encoding ---------------------------------------------------------------------------------


# For each primitive type, its code in ``struct`` and its null value.
PRIMITIVES: dict[str, tuple[str, Any]] = {
    "char": ("c", b"\0"),
    "int8": ("b", -(1 << 7)),
    "int16": ("h", -(1 << 15)),
    "int32": ("i", -(1 << 31)),
    "int64": ("q", -(1 << 63)),
    "uint8": ("B", (1 << 8) - 1),
    "uint16": ("H", (1 << 16) - 1),
    "uint32": ("I", (1 << 32) - 1),
    "uint64": ("Q", (1 << 64) - 1),
    "float": ("f", None),
    "double": ("d", None),
}
# Maximum number of entries in a group. A group that states more is corrupt.
MAX_ENTRIES = 65_534
# Longer than any message. Without a limit, an attribute could demand more memory than there is.
MAX_LENGTH = 1 << 24
WHOLE = frozenset(name for name in PRIMITIVES if "int" in name)


@dataclass
class Type:
    """A primitive type, an array of one, a constant, an enum or set (with ``names``), or a composite (with ``members``).

    ``since`` is the version of the schema that added it.
    """

    name: str
    primitive: str = ""
    length: int = 1
    is_optional: bool = False
    null: Any = None
    constant: Any = None
    names: dict[Any, str] = field(default_factory=dict)
    is_set: bool = False
    members: list[tuple[str, int, Type]] = field(default_factory=list)
    encoding: str = "utf-8"
    since: int = 0

    @property
    def size(self) -> int:
        if self.constant is not None:
            return 0
        if self.members:
            return max((offset + kind.size for _, offset, kind in self.members), default=0)
        return struct.calcsize("<" + PRIMITIVES[self.primitive][0]) * self.length

    def read(self, data: bytes, at: int, order: str, version: int) -> Any:
        """Return the value at an offset, or None for the null value and for what a message of this version lacks.

        Raises struct.error past the end of the data.
        """
        if self.since > version:
            return None
        if self.constant is not None:
            return self.constant
        if self.members:
            return {name: kind.read(data, at + offset, order, version) for name, offset, kind in self.members}
        code, null = PRIMITIVES[self.primitive]
        if self.primitive == "char":
            (text,) = struct.unpack_from(f"{self.length}s", data, at)
            if self.names:
                return self._name(text.decode("latin-1"), "\0")
            text = self._text(text)
            return text if text or not self.is_optional else None
        values = struct.unpack_from(f"{order}{self.length}{code}", data, at)
        if self.length > 1:
            return list(values)
        (value,) = values
        null = null if self.null is None else self.null
        if self.is_set:
            if unknown := value & ~sum(1 << bit for bit in self.names):
                raise ValueError(f"{self.name} has no choice for the bits {unknown:#x}")
            return [name for bit, name in self.names.items() if value >> bit & 1]
        if self.names:
            return self._name(value, null)
        is_null = value != value if null is None else value == null
        return None if self.is_optional and is_null else value

    def _text(self, data: bytes) -> str:
        if not self.encoding.startswith(("utf-16", "utf-32")):
            # Bytes after the end are not part of the text.
            data = data.split(b"\0")[0]
        try:
            return data.decode(self.encoding).split("\0")[0]
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.name} is not {self.encoding}: {error.reason} at byte {error.start}") from None

    def _name(self, value: Any, null: Any) -> str | None:
        """Return the name of an enum's value, or None for the null value. Raises ValueError for an unknown value."""
        if value not in self.names and value != null:
            raise ValueError(f"{self.name} has no value {value!r}")
        return self.names.get(value)


@dataclass
class Block:
    """A message, or an entry of a group: fields at fixed offsets, then groups of blocks, then variable-length data."""

    name: str
    template_id: int = 0
    length: int = 0
    dimension: Type | None = None
    fields: list[tuple[str, int, Type]] = field(default_factory=list)
    groups: list[Block] = field(default_factory=list)
    data: list[tuple[str, Type]] = field(default_factory=list)
    since: int = 0


class SbeSchema:
    """A whole schema. Raises ValueError if the XML is not an SBE schema or is incomplete."""

    def __init__(self, xml: str) -> None:
        try:
            root = ElementTree.fromstring(xml)
        except ElementTree.ParseError as error:
            raise ValueError(f"the schema is not XML: {error}") from None
        if _tag(root) != "messageSchema":
            raise ValueError(f"the schema's root is {_tag(root)!r}, not 'messageSchema'")
        self.order = ">" if root.get("byteOrder") == "bigEndian" else "<"
        self.id, self.version = root.get("id"), int(root.get("version") or 0)
        try:
            self._read_root(root)
        except RecursionError:
            raise ValueError("the schema's types or groups are nested too deeply") from None

    def _read_root(self, root: Element) -> None:
        self.types = {name: Type(name, primitive=name) for name in PRIMITIVES}
        for group in root:
            if _tag(group) == "types":
                for element in group:
                    kind = self._type(element)
                    self.types[kind.name] = kind
        self.header = _with_numbers(self._named(root.get("headerType") or "messageHeader"), "blockLength", "templateId")
        messages = [self._block(element) for element in root if _tag(element) == "message"]
        self.messages = {block.template_id: block for block in messages}

    def _named(self, name: str) -> Type:
        try:
            return self.types[name]
        except KeyError:
            raise ValueError(f"the schema has no type {name!r}") from None

    def _type(self, element: Element) -> Type:
        kind, name = _tag(element), element.get("name") or ""
        if kind == "composite":
            members, at = [], 0
            for child in element:
                part = self._named(child.get("type") or "") if _tag(child) == "ref" else self._type(child)
                part = _since(child, part)
                at = _whole(child, "offset", at)
                members.append((child.get("name") or "", at, part))
                at += part.size
            if not members:
                raise ValueError(f"composite {name!r} has no members")
            return Type(name, members=members)
        if kind in ("enum", "set"):
            base = self._named(element.get("encodingType") or "")
            if not base.primitive:
                raise ValueError(f"{kind} {name!r} is of {base.name!r}, which is not a primitive type")
            is_char = base.primitive == "char"
            names = {(item.text or "" if is_char else int(item.text or "")): item.get("name") or "" for item in element}
            return Type(name, primitive=base.primitive, names=names, is_set=kind == "set", null=base.null)
        primitive = element.get("primitiveType") or ""
        if primitive not in PRIMITIVES:
            raise ValueError(f"type {name!r} is of {primitive!r}, which is not a primitive type")
        value = Type(name, primitive=primitive, length=_whole(element, "length", 1))
        value.is_optional = element.get("presence") == "optional"
        value.encoding = _encoding(element)
        number = float if primitive in ("float", "double") else int
        if element.get("nullValue") and primitive != "char":
            value.null = number(element.get("nullValue") or "")
        if element.get("presence") == "constant":
            text = (element.text or "").strip()
            value.constant = text if primitive == "char" else number(text)
        return value

    def _block(self, element: Element) -> Block:
        block = Block(element.get("name") or "", int(element.get("id") or 0))
        at = 0
        for child in element:
            kind, name = _tag(child), child.get("name") or ""
            if kind == "field":
                of = _since(child, self._field(child))
                at = _whole(child, "offset", at)
                block.fields.append((name, at, of))
                at += of.size
            elif kind == "group":
                inner = self._block(child)
                dimension = self._named(child.get("dimensionType") or "groupSizeEncoding")
                inner.dimension = _with_numbers(dimension, "blockLength", "numInGroup")
                inner.since = _whole(child, "sinceVersion", 0)
                block.groups.append(inner)
            elif kind == "data":
                of = _since(child, _with_numbers(self._named(child.get("type") or ""), "length"))
                block.data.append((name, of))
        block.length = _whole(element, "blockLength", at)
        return block

    def _field(self, element: Element) -> Type:
        of = self._named(element.get("type") or "")
        if element.get("presence") == "constant" and element.get("valueRef"):
            return Type(of.name, primitive=of.primitive, constant=(element.get("valueRef") or "").rpartition(".")[2])
        if element.get("presence") == "optional" and not of.is_optional and not of.members:
            return replace(of, is_optional=True)
        return of

    def decode(self, data: bytes) -> tuple[Block, dict[str, Any]] | None:
        """Return the message type and the values, or None for an unknown template.

        What was added after the message's version is missing: fields and data are None, and groups are empty. Raises ValueError for
        a message of another schema or a truncated one.
        """
        try:
            head = self.header.read(data, 0, self.order, self.version)
            if self.id is not None and head.get("schemaId", int(self.id)) != int(self.id):
                raise ValueError(f"the message is of schema {head['schemaId']}, not {self.id}")
            block = self.messages.get(head["templateId"])
            if block is None:
                return None
            version = head.get("version", self.version)
            values, _ = self._read(
                block, data, self.header.size, head["blockLength"], version, [MAX_ENTRIES + len(data)]
            )
        except struct.error as error:
            raise ValueError(f"the message of {len(data)} bytes is cut off: {error}") from None
        return block, values

    def _read(
        self, block: Block, data: bytes, at: int, length: int, version: int, entries_left: list[int]
    ) -> tuple[dict[str, Any], int]:
        # Writers with an older schema version may have a shorter block. Fields past its end are missing.
        values: dict[str, Any] = {
            name: kind.read(data, at + offset, self.order, version) if offset + kind.size <= length else None
            for name, offset, kind in block.fields
        }
        at += length
        for group in block.groups:
            assert group.dimension is not None
            if group.since > version:
                values[group.name] = []
                continue
            size = group.dimension.read(data, at, self.order, version)
            at += group.dimension.size
            if not 0 <= size["numInGroup"] <= MAX_ENTRIES or size["blockLength"] < 0:
                announced = f"{size['numInGroup']} entries of {size['blockLength']} bytes"
                raise ValueError(f"group {group.name!r} announces {announced}")
            # Entries of 0 bytes in nested groups would otherwise multiply.
            entries_left[0] -= size["numInGroup"]
            if entries_left[0] < 0:
                raise ValueError(
                    f"the groups of a message of {len(data)} bytes announce more than {MAX_ENTRIES + len(data)} entries"
                )
            entries = values[group.name] = []
            for _ in range(size["numInGroup"]):
                entry, at = self._read(group, data, at, size["blockLength"], version, entries_left)
                entries.append(entry)
        for name, kind in block.data:
            if kind.since > version:
                values[name] = None
                continue
            count, size = self._announced(name, kind, data, at)
            at += size
            if count < 0 or at + count > len(data):
                raise ValueError(f"data {name!r} announces {count} bytes, and {len(data) - at} are left")
            values[name] = data[at : at + count]
            at += count
        return values, at

    def _announced(self, name: str, kind: Type, data: bytes, at: int) -> tuple[int, int]:
        """Return the length of variable-length data, and the length of its length field."""
        for part, offset, member in kind.members:
            if part == "length":
                return int(member.read(data, at + offset, self.order, self.version)), offset + member.size
        raise ValueError(f"the type {kind.name!r} of data {name!r} has no member 'length'")


def _whole(element: Element, name: str, default: int) -> int:
    """Parse an attribute that is an offset or a length."""
    value = int(element.get(name) or default)
    if not 0 <= value <= MAX_LENGTH:
        raise ValueError(f"{name} {value} of {element.get('name')!r} must be from 0 to {MAX_LENGTH}")
    return value


def _since(element: Element, kind: Type) -> Type:
    since = _whole(element, "sinceVersion", 0)
    return replace(kind, since=since) if since else kind


def _encoding(element: Element) -> str:
    """Return Python's name of a type's character encoding. ASCII is read as UTF-8, which is the same for every ASCII text."""
    name = element.get("characterEncoding") or "utf-8"
    try:
        b" ".decode(name, "ignore")  # also refuses encodings that are not of text
    except LookupError:
        raise ValueError(f"type {element.get('name')!r} has the unknown character encoding {name!r}") from None
    encoding = codecs.lookup(name).name
    return "utf-8" if encoding == "ascii" else encoding


def _with_numbers(kind: Type, *names: str) -> Type:
    """Check that the members that hold a composite's lengths are single integers that are always present."""
    members = {name: member for name, _, member in kind.members}
    for name in names:
        member = members.get(name)
        if member is None or member.primitive not in WHOLE or member.length != 1 or member.names or member.is_optional:
            raise ValueError(f"the type {kind.name!r} has no member {name!r} that is a whole number")
    return kind


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


class Sbe(RowCodec):
    """The codec for SBE. Options: ``xml``, the schema's file, and ``message``, the type to read. Other types become problems.

    Groups become lists of structs, composites structs, enums strings, sets lists of strings, and variable-length data binary.
    Messages of every version can be read: in those of an older one, what was added later is null, and groups are empty.
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

    @decodes
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


# Spark has no unsigned integers, so use the next larger type.
_NUMBERS = {"uint8": "int16", "uint16": "int32", "uint32": "int64", "float": "float32", "double": "float64"}


def _arrow(kind: Type) -> Any:
    import pyarrow as pa

    if kind.members:
        return pa.struct([pa.field(name, _arrow(member)) for name, _, member in kind.members])
    if kind.is_set:
        return pa.list_(pa.string())
    if kind.names or kind.primitive == "char" or isinstance(kind.constant, str):
        return pa.string()
    # No integer type of Spark holds unsigned 64-bit values.
    number = (
        pa.decimal128(20, 0)
        if kind.primitive == "uint64"
        else getattr(pa, _NUMBERS.get(kind.primitive, kind.primitive))()
    )
    return pa.list_(number) if kind.length > 1 and kind.constant is None else number
