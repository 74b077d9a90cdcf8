"""An Avro schema as a tree of types. It gives Arrow types, converts values that fastavro does not, and bounds hostile messages.

Each schema is read once and bounded here. Messages are then decoded without further checks, so the schema must bound their cost:
types do not recur, each item of an array or map takes at least one byte, and ``values_per_byte`` bounds the number of values.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mainstem._internal.error_texts import json_problem
from mainstem.codecs.exact import DECIMAL_DIGITS, is_float_32, to_integer
from mainstem.errors import ConfigurationError, needs_extras

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

# Maximum depth of nested types. A deeper schema is not data but an attack on the stack.
MAX_DEPTH = 64
# Maximum number of types in the whole tree. A named type counts at each use, so that a short schema cannot stand for millions.
MAX_TYPES = 20_000
# fastavro converts these. This module converts other logical types, whose lengths it bounds, or ignores the annotation.
TIMES = {
    ("int", "date"), ("long", "timestamp-millis"), ("long", "timestamp-micros"), ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
}  # fmt: skip
# Annotations that are valid beside those. Their numbers stay numbers: no column that Spark has would hold them.
NUMBERS = {
    ("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-nanos"), ("long", "local-timestamp-nanos"),
}  # fmt: skip
CONVERTED = {"decimal", "uuid", "time-millis"}
BITS = {"int": 31, "long": 63}
PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
MIN_BYTES = {"null": 0, "float": 4, "double": 8}
PYTHON: dict[str, tuple[type, ...]] = {
    "null": (type(None),), "boolean": (bool,), "int": (int,), "long": (int,), "float": (float, int), "double": (float, int),
    "bytes": (bytes,), "fixed": (bytes,), "string": (str,), "enum": (str,), "array": (list,), "map": (dict,), "record": (dict,),
}  # fmt: skip


@dataclass
class Type:
    """A node of the type tree. ``fields`` belong to a record, ``items`` to an array or map, and ``branches`` to a union.

    ``annotation`` is the valid logical type, and ``logical`` too if values are converted. ``convert`` makes the column's value from
    a plain number, string or bytes of another schema (``avro_resolution``).
    """

    kind: str
    name: str = ""
    logical: str = ""
    annotation: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    fields: list[tuple[str, Type, bool]] = field(default_factory=list)
    items: Type | None = None
    branches: list[Type] = field(default_factory=list)
    defaults: dict[str, Any] = field(default_factory=dict)
    aliases: frozenset[str] = frozenset()
    field_aliases: dict[str, str] = field(default_factory=dict)
    convert: Callable[[Any], Any] | None = None

    @property
    def present(self) -> list[Type]:
        return [branch for branch in self.branches if branch.kind != "null"]

    @property
    def label(self) -> str:
        """The type's name among the branches of a union, without its namespace."""
        if self.name or self.logical:
            return self.name.rpartition(".")[2] or self.logical.replace("-", "_")
        return {"int": "long", "float": "double"}.get(self.kind, self.kind)

    @property
    def python(self) -> tuple[type, ...]:
        if self.convert is not None or not self.logical or self.logical in CONVERTED:
            return PYTHON[self.kind]
        return (datetime,) if "timestamp" in self.logical else (date,)

    @property
    def parts(self) -> list[Type]:
        return [*(each for _, each, _ in self.fields), *self.branches, *([self.items] if self.items else [])]

    def kinds(self) -> set[str]:
        return {self.kind}.union(*(each.kinds() for each in self.parts))

    def min_bytes(self) -> int:
        if self.kind == "record":
            return sum(each.min_bytes() for _, each, _ in self.fields)
        return self.size if self.kind == "fixed" else MIN_BYTES.get(self.kind, 1)

    def values(self) -> int:
        if self.kind == "union":
            return 1 + max((each.values() for each in self.branches), default=0)
        return 1 + sum(each.values() for _, each, _ in self.fields)

    def lists(self, path: str = "") -> Iterator[tuple[str, Type]]:
        """Yield the item type of every array and map, by path."""
        for name, each, _ in self.fields:
            yield from each.lists(f"{path}.{name}")
        for each in self.branches:
            yield from each.lists(path)
        if self.items is not None:
            yield f"{path}[]", self.items
            yield from self.items.lists(f"{path}[]")

    def is_walked(self) -> bool:
        """Return whether values need conversion after fastavro."""
        is_converted = self.logical in CONVERTED or len(self.present) > 1
        return is_converted or self.convert is not None or any(each.is_walked() for each in self.parts)


class AvroSchema:
    """A parsed schema. ``parsed`` is fastavro's form of it. Raises ConfigurationError for an unusable schema."""

    def __init__(self, text: str) -> None:
        with needs_extras():
            import fastavro.schema

        try:
            raw = json.loads(text)
            _check_depth(raw)
            self.parsed = fastavro.schema.parse_schema(_without_logical_types(raw))
            canonical = fastavro.schema.to_parsing_canonical_form(raw)
            self.fingerprint = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
            annotated = fastavro.schema.parse_schema(raw)
        except ConfigurationError:
            raise
        except json.JSONDecodeError as error:
            raise ConfigurationError(f"Avro schema: it is not JSON: {json_problem(error)}") from None
        except RecursionError:
            raise ConfigurationError(f"Avro schema: deeper than {MAX_DEPTH} types") from None
        except Exception as error:
            raise ConfigurationError(f"Avro schema: {type(error).__name__}: {error}") from None
        self._raw = raw
        self._names: dict[str, Any] = {}
        self._defaults: dict[str, dict[str, Any]] = {}
        self._count = 0
        self.root = self._type(annotated, (), 0)
        if self.root.kind != "record":
            raise ConfigurationError(f"Avro schema: a message is a record, not {self.root.kind}")
        _set_defaults(self.parsed, self.root)
        self.is_walked = self.root.is_walked()
        for path, items in self.root.lists():
            if items.min_bytes() == 0:
                raise ConfigurationError(f"Avro schema: {path[1:]}: items of no bytes have no bounded number")

    def without_logical_types(self) -> AvroSchema:
        """Return the schema that has the plain type in place of each logical one."""
        return AvroSchema(json.dumps(_without_logical_types(self._raw, keep=frozenset())))

    def _type(self, node: Any, around: tuple[str, ...], depth: int) -> Type:
        self._count += 1
        if depth > MAX_DEPTH or self._count > MAX_TYPES:
            raise ConfigurationError(f"Avro schema: deeper than {MAX_DEPTH} types, or more than {MAX_TYPES}")
        if isinstance(node, str):
            if node in PRIMITIVES:
                return Type(node)
            if node in around:
                raise ConfigurationError(f"Avro schema: {node} contains itself, and no column holds that")
            return self._type(self._names[node], around, depth)
        if isinstance(node, list):
            return Type("union", branches=[self._type(each, around, depth + 1) for each in node])
        kind = node["type"]
        if not isinstance(kind, str) or (kind not in PRIMITIVES and kind not in PYTHON and kind != "error"):
            return self._type(kind, around, depth + 1)
        name = node.get("name", "")
        if name:
            self._names[name] = node
            if name in around:
                raise ConfigurationError(f"Avro schema: {name} contains itself, and no column holds that")
        result = Type("record" if kind == "error" else kind, name, **_logical(node))
        result.size, result.symbols = node.get("size", 0), tuple(node.get("symbols", ()))
        result.aliases = frozenset(each.rpartition(".")[2] for each in node.get("aliases", ()))
        if result.kind == "record":
            inner = (*around, name)
            result.fields = [
                (each["name"], self._type(each["type"], inner, depth + 1), "default" in each) for each in node["fields"]
            ]
            result.field_aliases = {alias: each["name"] for each in node["fields"] for alias in each.get("aliases", ())}
            # A named type appears in the tree at each use. All uses share its defaults.
            result.defaults = self._defaults.setdefault(name, {})
            if not result.fields:
                raise ConfigurationError(f"Avro schema: {name} has no fields, and no column holds that")
        elif kind in ("array", "map"):
            result.items = self._type(node["items" if kind == "array" else "values"], around, depth + 1)
        return result


def _set_defaults(node: Any, kind: Type) -> None:
    """Convert defaults from JSON to Python values, because fastavro uses them unchanged."""
    if isinstance(node, list):
        for each, branch in zip(node, kind.branches, strict=True):
            _set_defaults(each, branch)
    elif isinstance(node, dict) and isinstance(node["type"], dict | list):
        _set_defaults(node["type"], kind)
    elif isinstance(node, dict) and kind.items is not None:
        _set_defaults(node["items" if kind.kind == "array" else "values"], kind.items)
    elif isinstance(node, dict):
        for each, (name, inner, has_default) in zip(node.get("fields", ()), kind.fields, strict=True):
            _set_defaults(each["type"], inner)
            if has_default:
                try:
                    each["default"] = kind.defaults[name] = _native(each["default"], inner)
                except (TypeError, ValueError, OverflowError, AttributeError, KeyError) as error:
                    raise ConfigurationError(f"Avro schema: the default of {name}: {error}") from None


def _native(value: Any, kind: Type) -> Any:
    if kind.kind == "union":
        # A union's default belongs to its first branch, as Avro specifies. Newer versions allow any branch, in practice null.
        branches = [each for each in kind.branches if (each.kind == "null") == (value is None)]
        return _native(value, branches[0]) if value is not None and branches else value
    if kind.kind in ("bytes", "fixed"):
        return value if isinstance(value, bytes) else value.encode("latin-1")
    if kind.kind == "record":
        return {
            name: _native(value[name], each) if name in value else kind.defaults[name] for name, each, _ in kind.fields
        }
    if kind.kind == "map" and kind.items is not None:
        return {name: _native(each, kind.items) for name, each in value.items()}
    if kind.items is not None:
        return [_native(each, kind.items) for each in value]
    if type(value) is int and (kind.kind, kind.logical) in TIMES:
        return logical_value(value, kind)
    return float(value) if kind.kind in ("float", "double") else value


def logical_value(value: Any, kind: Type) -> Any:
    """Return the column's value for a plain one with the logical type of ``kind``. Raises ValueError."""
    if kind.logical == "decimal":
        return to_decimal(value, kind)
    if kind.logical == "uuid":
        return str(uuid.UUID(bytes=value) if kind.kind == "fixed" else uuid.UUID(value))
    if kind.logical == "time-millis":
        return 1000 * value
    if kind.logical == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    if "timestamp" in kind.logical:
        length = timedelta(milliseconds=value) if kind.logical.endswith("millis") else timedelta(microseconds=value)
        return datetime(1970, 1, 1, tzinfo=None if kind.logical.startswith("local") else UTC) + length
    return value


def to_decimal(value: bytes, kind: Type) -> Decimal:
    """Return the decimal of a decimal's bytes, with the scale of ``kind``. Raises ValueError."""
    if len(value) > DECIMAL_DIGITS:
        raise ValueError(f"a decimal of {len(value)} bytes, where it has {kind.precision} digits")
    return _scaled(Decimal(int.from_bytes(value, "big", signed=True)), -kind.scale)


def to_scale(value: Decimal | int, kind: Type) -> int:
    """Return a decimal's digits at the scale of ``kind``. Raises ValueError unless they are exactly that value and few enough."""
    number = to_integer(_scaled(Decimal(value), kind.scale))
    if abs(number) >= 10**kind.precision:
        raise ValueError(f"{value} has more than {kind.precision} digits at a scale of {kind.scale}")
    return number


def values_per_byte(writer: AvroSchema, reader: AvroSchema) -> float:
    """Return the highest number of items of arrays and maps that one byte of a message can become."""
    written = {path: items.min_bytes() for path, items in writer.root.lists()}
    least = min(written.values(), default=1)
    lists = [*writer.root.lists(), *reader.root.lists()]
    return max((items.values() / written.get(path, least) for path, items in lists), default=0)


def _check_depth(raw: Any) -> None:
    """Raise ConfigurationError for a schema that is nested too deeply for recursion. A type takes up to three levels."""
    level = [raw]
    for _ in range(3 * MAX_DEPTH):
        level = [
            each
            for node in level
            if isinstance(node, dict | list)
            for each in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise ConfigurationError(f"Avro schema: deeper than {MAX_DEPTH} types")


def _without_logical_types(node: Any, keep: Set[tuple[str, str]] = TIMES) -> Any:
    """Return the schema without the annotations that fastavro must not process."""
    if isinstance(node, list):
        return [_without_logical_types(each, keep) for each in node]
    if not isinstance(node, dict):
        return node
    plain = {
        name: value if name in ("default", "doc") else _without_logical_types(value, keep)
        for name, value in node.items()
    }
    kind = node.get("type")
    if "logicalType" in plain and not (isinstance(kind, str) and (kind, plain["logicalType"]) in keep):
        del plain["logicalType"]
    return plain


def _logical(node: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes for a logical type. Empty if it is unknown or invalid, which Avro requires readers to ignore."""
    kind, logical = node["type"], node.get("logicalType")
    if (kind, logical) in TIMES or (
        logical == "uuid" and (kind == "string" or (kind == "fixed" and node["size"] == 16))
    ):
        return {"logical": logical, "annotation": logical}
    if (kind, logical) in NUMBERS:
        return {"logical": logical if logical == "time-millis" else "", "annotation": logical}
    precision, scale = node.get("precision"), node.get("scale", 0)
    if logical != "decimal" or kind not in ("bytes", "fixed") or type(precision) is not int or type(scale) is not int:
        return {}
    if precision > DECIMAL_DIGITS:
        raise ConfigurationError(f"Avro schema: a decimal of {precision} digits; columns hold {DECIMAL_DIGITS}")
    if not 0 <= scale <= precision or not precision:
        return {}
    return {"logical": logical, "annotation": logical, "precision": precision, "scale": scale}


def arrow_type(kind: Type) -> Any:
    """Return the Arrow type for an Avro type. It holds every value, and Spark supports it."""
    import pyarrow as pa

    if kind.logical == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind == "record":
        return pa.struct([(name, arrow_type(each)) for name, each, _ in kind.fields])
    if kind.kind == "union":
        present = kind.present
        if len(present) == 1:
            return arrow_type(present[0])
        labels: dict[str, Any] = {}
        for each in present:
            # An int and a long in one union become one field, as fastavro does not tell which it was. The wider one comes last.
            wider = each.label in labels and each.kind in ("int", "float")
            is_number = each.kind in ("int", "long", "float", "double") and not each.logical
            if each.label in labels and not is_number:
                raise ConfigurationError(f"Avro schema: two branches of a union are named {each.label}")
            labels[each.label] = labels[each.label] if wider else arrow_type(each)
        # A union of only null, or of nothing, becomes a column of nulls.
        return pa.struct(list(labels.items())) if labels else pa.string()
    if kind.items is not None:
        items = arrow_type(kind.items)
        return pa.list_(items) if kind.kind == "array" else pa.map_(pa.string(), items)
    plain = {
        "null": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "bytes": pa.binary(), "fixed": pa.binary(), "string": pa.string(), "enum": pa.string(),
        "date": pa.date32(), "uuid": pa.string(), "time-millis": pa.int64(),
        "timestamp-millis": pa.timestamp("us", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
        "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"),
    }  # fmt: skip
    return plain[kind.logical or kind.kind]


def to_value(value: Any, kind: Type) -> Any:
    """Convert fastavro's values for a column: logical types, and unions, which become a struct. Raises ValueError."""
    if kind.kind == "union" and kind.convert is None:
        return _of_union(value, kind)
    if isinstance(value, tuple):
        # The writer's schema has a union here, so fastavro returns the branch's name too.
        value = value[1]
    if value is None:
        return None
    if kind.convert is not None:
        return kind.convert(value)
    if kind.fields:
        return {name: to_value(value[name], each) for name, each, _ in kind.fields}
    if kind.items is not None:
        if kind.kind == "map":
            return {name: to_value(each, kind.items) for name, each in value.items()}
        return [to_value(each, kind.items) for each in value]
    if kind.logical in CONVERTED:
        return logical_value(value, kind)
    return value


def _of_union(value: Any, kind: Type) -> Any:
    present = kind.present
    name, inner = value if isinstance(value, tuple) else ("", value)
    if inner is None:
        return None
    if len(present) == 1:
        return to_value(inner, present[0])
    branches = [each for each in present if each.name == name] if name else []
    # If the writer's schema has no union here, the branch has no name.
    branches = branches or [each for each in present if type(inner) in each.python]
    branches = [each for each in branches if not each.name] or branches
    if type(inner) is int:
        branches = [each for each in branches if each.kind in BITS] or branches
    if len({each.label for each in branches}) != 1:
        raise ValueError(f"a union holds {type(inner).__name__} {name}, which {len(branches)} of its branches can be")
    return {branches[-1].label: to_value(inner, branches[-1])}


def to_datum(value: Any, kind: Type, where: str = "") -> Any:
    """Convert a value for fastavro, strictly. Raises ConfigurationError, which names the field."""
    if kind.kind == "union":
        return _to_branch(value, kind, where)
    if kind.fields:
        if not isinstance(value, dict):
            raise _misfit(value, kind, where)
        names = {name for name, _, _ in kind.fields}
        if surplus := sorted(set(value) - names):
            raise ConfigurationError(f"{where}{surplus[0]}: the schema has no such field")
        # fastavro writes the default of a missing field.
        return {
            name: to_datum(value.get(name), each, f"{where}{name}.")
            for name, each, has_default in kind.fields
            if name in value or not has_default
        }
    if kind.logical and kind.logical != "uuid":
        return _logical_datum(value, kind, where)
    if kind.logical == "uuid" and isinstance(value, str | uuid.UUID):
        return uuid.UUID(str(value)).bytes if kind.kind == "fixed" else str(uuid.UUID(str(value)))
    if type(value) not in PYTHON[kind.kind]:
        raise _misfit(value, kind, where)
    if kind.kind == "map":
        assert kind.items is not None
        return {name: to_datum(each, kind.items, f"{where}{name}.") for name, each in value.items()}
    if kind.items is not None:
        return [to_datum(each, kind.items, where) for each in value]
    bits = BITS.get(kind.kind)
    is_wrong = (
        (bits is not None and not -(1 << bits) <= value < 1 << bits)
        or (kind.kind == "enum" and value not in kind.symbols)
        or (kind.kind == "fixed" and len(value) != kind.size)
        or (kind.kind in ("float", "double") and not _is_floating(value, kind))
    )
    if is_wrong:
        raise _misfit(value, kind, where)
    return value


def check_promoted(value: Any, kind: Type) -> None:
    """Raise ValueError if a floating-point ``kind`` cannot hold the writer's integer exactly, which Avro does not check."""
    if kind.kind in ("float", "double") and type(value) is int and not _is_floating(value, kind):
        raise ValueError(f"{value} is not exactly a {kind.kind}")
    if isinstance(value, dict):
        members = kind.fields or ([(name, kind.items, False) for name in value] if kind.items else [])
        for name, each, _ in members:
            check_promoted(value.get(name), each)
    elif isinstance(value, list) and kind.items is not None:
        for each in value:
            check_promoted(each, kind.items)
    if type(value) is not int or not any(branch.kind in BITS for branch in kind.branches):
        for branch in kind.branches:
            check_promoted(value, branch)


def _is_floating(value: float, kind: Type) -> bool:
    """Return whether a floating-point type holds a number exactly."""
    try:
        number = float(value)
    except OverflowError:
        return False
    return (number == value or number != number) and (kind.kind == "double" or is_float_32(number))


def _scaled(value: Decimal, scale: int) -> Decimal:
    """Return a decimal times a power of ten, with all its digits. ``scaleb`` would round."""
    sign, digits, exponent = value.as_tuple()
    return Decimal((sign, digits, exponent + scale)) if isinstance(exponent, int) else value


def _to_branch(value: Any, kind: Type, where: str) -> Any:
    present = kind.present
    if value is None:
        if len(present) == len(kind.branches):
            raise _misfit(value, kind, where)
        return None
    if len(present) == 1:
        return to_datum(value, present[0], where)
    set_fields = [(name, each) for name, each in value.items() if each is not None] if isinstance(value, dict) else []
    branches = [each for each in present if set_fields and each.label == set_fields[0][0]]
    if len(set_fields) != 1 or not branches:
        labels = ", ".join(dict.fromkeys(each.label for each in present))
        raise ConfigurationError(f"{where[:-1]}: one of {labels} is set in the struct of a union")
    branch = next((each for each in branches if each.kind in ("long", "double")), branches[0])
    return branch.name or branch.kind, to_datum(set_fields[0][1], branch, where)


def _logical_datum(value: Any, kind: Type, where: str) -> Any:
    if kind.logical == "decimal":
        if not isinstance(value, Decimal | int) or isinstance(value, bool):
            raise _misfit(value, kind, where)
        try:
            number = to_scale(value, kind)
        except ValueError:
            raise _misfit(value, kind, where) from None
        length = kind.size or number.bit_length() // 8 + 1
        return number.to_bytes(length, "big", signed=True)
    if kind.logical == "time-millis":
        if type(value) is not int or value % 1000 or not -(1 << 31) <= value // 1000 < 1 << 31:
            raise _misfit(value, kind, where)
        return value // 1000
    expected = datetime if "timestamp" in kind.logical else date
    is_right = isinstance(value, expected) and (expected is not date or not isinstance(value, datetime))
    if is_right and expected is datetime:
        is_right = (value.tzinfo is None) == kind.logical.startswith("local")
    if is_right and kind.logical.endswith("-millis"):
        is_right = value.microsecond % 1000 == 0
    if not is_right:
        raise _misfit(value, kind, where)
    return value


def _misfit(value: Any, kind: Type, where: str) -> ConfigurationError:
    text = repr(value)
    text = text if len(text) <= 60 else text[:60] + "…"
    return ConfigurationError(f"{where[:-1]}: {text} is not an Avro {kind.logical or kind.name or kind.kind}")
