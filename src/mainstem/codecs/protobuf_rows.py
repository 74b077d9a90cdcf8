"""Converts Protobuf messages to rows and back.

A column can hold every value of its field. Spark has no unsigned integers, so uint32 becomes int64 and uint64 becomes a decimal.
If a field is not set, it has its default if it has no presence, and is null otherwise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mainstem.codecs.exact import is_float_32, shown, to_integer
from mainstem.codecs.numerals import is_held
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

# Maximum nesting depth of messages. The runtime's parser stops at 100.
MAX_DEPTH = 64
# Maximum number of fields in the whole tree. A message counts at each use.
MAX_FIELDS = 20_000
# The limit per message, which corresponds to several hundred megabytes of Python objects.
MAX_VALUES = 1 << 24
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NS = 1_000_000_000
INT_64 = 1 << 63
# The numbers in FieldDescriptorProto.Type.
DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING, GROUP, MESSAGE, BYTES, UINT32, ENUM = range(1, 15)
SFIXED32, SFIXED64, SINT32, SINT64 = range(15, 19)
UNSIGNED_64 = (UINT64, FIXED64)
PYTHON: dict[int, tuple[type, ...]] = {
    DOUBLE: (float, int), FLOAT: (float, int), BOOL: (bool,), STRING: (str,), BYTES: (bytes,), ENUM: (str,),
    UINT64: (int, Decimal), FIXED64: (int, Decimal),
}  # fmt: skip
JSON = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
_PLAIN = (bool, int, float, str, bytes)
TIMES = ("google.protobuf.Timestamp", "google.protobuf.Duration")
WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class Budget:
    """The number of values that one message may still have."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"the message has more than {MAX_VALUES} values")


@dataclass
class Field:
    """A field as a column. ``read`` and ``write`` convert one value, or one item of a list or map."""

    name: str
    arrow: Any
    read: Callable[[Any, Budget], Any]
    write: Callable[[Any], Any]
    descriptor: Any
    key: Field | None = None
    message: Message | None = None
    has_presence: bool = False
    is_repeated: bool = False


@dataclass
class Message:
    name: str
    fields: list[Field] = field(default_factory=list)
    by_name: dict[str, Field] = field(default_factory=dict)

    def read(self, message: Any, budget: Budget) -> dict[str, Any]:
        from google.protobuf.unknown_fields import UnknownFieldSet

        budget.take(len(self.fields))
        row: dict[str, Any] = {}
        for each in self.fields:
            if each.has_presence and not message.HasField(each.name):
                row[each.name] = None
                continue
            value = getattr(message, each.name)
            if each.is_repeated:
                budget.take(len(value))
            if each.key is not None:
                row[each.name] = {each.key.read(key, budget): each.read(value[key], budget) for key in value}
            elif each.is_repeated:
                row[each.name] = [each.read(item, budget) for item in value]
            else:
                row[each.name] = each.read(value, budget)
        row.update(_numbered(UnknownFieldSet(message), budget))
        for descriptor, value in message.ListFields():
            if descriptor.is_extension:
                row[f"[{descriptor.full_name}]"] = value if isinstance(value, _PLAIN) else str(value)
        return row

    def write(self, row: Any, message: Any, where: str = "") -> None:
        if not isinstance(row, dict):
            raise ConfigurationError(f"{where[:-1]}: {row!r:.60} is not a {self.name}")
        if surplus := sorted(set(row) - set(self.by_name)):
            raise ConfigurationError(f"{where}{surplus[0]}: the message has no such field")
        chosen: dict[str, str] = {}
        for each in self.fields:
            value = row.get(each.name)
            if value is None:
                continue
            union = each.descriptor.containing_oneof
            if union is not None and chosen.setdefault(union.name, each.name) != each.name:
                raise ConfigurationError(f"{where}{each.name}: {chosen[union.name]} of the same oneof is set too")
            try:
                _set(message, each, value, f"{where}{each.name}.")
            except ConfigurationError:
                raise
            except Exception as error:
                raise ConfigurationError(f"{where}{each.name}: {error}") from None


def _set(message: Any, each: Field, value: Any, where: str) -> None:
    if each.key is not None:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.60} is not a map")
        target = getattr(message, each.name)
        for key, item in value.items():
            if each.message is not None:
                each.message.write(item, target[each.key.write(key)], where)
            elif each.descriptor.message_type.fields_by_name["value"].type == MESSAGE:
                target[each.key.write(key)].CopyFrom(each.write(item))
            else:
                target[each.key.write(key)] = each.write(item)
    elif each.is_repeated:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{value!r:.60} is not a list")
        target = getattr(message, each.name)
        for item in value:
            if each.message is not None:
                each.message.write(item, target.add(), where)
            else:
                target.append(each.write(item))
    elif each.message is not None:
        target = getattr(message, each.name)
        target.SetInParent()
        each.message.write(value, target, where)
    elif each.descriptor.type in (MESSAGE, GROUP):
        written = each.write(value)
        if written is not None:
            getattr(message, each.name).SetInParent()
            getattr(message, each.name).CopyFrom(written)
    else:
        setattr(message, each.name, each.write(value))


def _numbered(unknown: Any, budget: Budget) -> dict[str, Any]:
    """Return the fields that the descriptor lacks, by number. Repeated ones are lists."""
    fields: dict[str, Any] = {}
    budget.take(len(unknown))
    for each in unknown:
        value: Any = each.data if isinstance(each.data, int | bytes) else _numbered(each.data, budget)
        name = str(each.field_number)
        if name in fields:
            before = fields[name] if isinstance(fields[name], list) else [fields[name]]
            before.append(value)
            value = before
        fields[name] = value
    return fields


class Messages:
    """A factory for the fields of message types. ``class_of`` maps descriptors to classes. With ``nanos``, times are int64."""

    def __init__(self, class_of: Callable[[Any], Any], *, nanos: bool) -> None:
        self._class_of, self._nanos, self._count = class_of, nanos, 0

    def message(self, descriptor: Any, around: tuple[str, ...] = ()) -> Message:
        if descriptor.full_name in around:
            raise ConfigurationError(f"Protobuf: {descriptor.full_name} contains itself, and no column holds that")
        if len(around) >= MAX_DEPTH:
            raise ConfigurationError(f"Protobuf: deeper than {MAX_DEPTH} messages")
        inner = (*around, descriptor.full_name)
        fields = [self._field(each, inner) for each in descriptor.fields]
        return Message(descriptor.full_name, fields, {each.name: each for each in fields})

    def _field(self, each: Any, around: tuple[str, ...]) -> Field:
        import pyarrow as pa

        self._count += 1
        if self._count > MAX_FIELDS:
            raise ConfigurationError(f"Protobuf: more than {MAX_FIELDS} fields")
        if is_map(each):
            key = self._field(each.message_type.fields_by_name["key"], around)
            result = self._field(each.message_type.fields_by_name["value"], around)
            result.key, result.arrow = key, pa.map_(key.arrow, result.arrow)
        else:
            arrow, read, write, message = self._value(each, around)
            result = Field(each.name, arrow, read, write, each, message=message)
        result.is_repeated = is_repeated(each)
        if result.is_repeated and result.key is None:
            result.arrow = pa.list_(result.arrow)
        result.name, result.descriptor, result.has_presence = each.name, each, bool(each.has_presence)
        return result

    def _value(self, each: Any, around: tuple[str, ...]) -> tuple[Any, Any, Any, Message | None]:
        """Return the Arrow type of one value, its two conversions, and its message type."""
        import pyarrow as pa

        if each.message_type is not None:
            return self._inner(each.message_type, around)
        if each.type == ENUM:
            names = {value.number: value.name for value in each.enum_type.values}
            numbers = {value.name: value.number for value in each.enum_type.values}
            return pa.string(), lambda v, _: names.get(v, str(v)), lambda v: _number_of(v, numbers), None
        types = {
            DOUBLE: pa.float64(), FLOAT: pa.float32(), BOOL: pa.bool_(), STRING: pa.string(), BYTES: pa.binary(),
            UINT64: pa.decimal128(20, 0), FIXED64: pa.decimal128(20, 0), UINT32: pa.int64(), FIXED32: pa.int64(),
            INT32: pa.int32(), SINT32: pa.int32(), SFIXED32: pa.int32(),
        }  # fmt: skip
        kind = each.type

        def write(value: Any) -> Any:
            if type(value) not in PYTHON.get(kind, (int,)):
                raise ValueError(f"{value!r:.60} is not a value of it")
            if kind in (DOUBLE, FLOAT):
                if (value == value and float(value) != value) or (kind == FLOAT and not is_float_32(value)):
                    raise ValueError(f"{shown(value)} is not exactly a {'float' if kind == FLOAT else 'double'}")
                return value
            return to_integer(value) if isinstance(value, Decimal) else value

        read = (lambda v, _: Decimal(v)) if kind in UNSIGNED_64 else (lambda v, _: v)
        return types.get(kind, pa.int64()), read, write, None

    def _inner(self, descriptor: Any, around: tuple[str, ...]) -> tuple[Any, Any, Any, Message | None]:
        import pyarrow as pa

        name = descriptor.full_name
        if name in TIMES:
            is_time = name == TIMES[0]
            make = self._class_of(descriptor)
            if self._nanos:
                return pa.int64(), lambda v, _: _nanos(v), lambda v: _of_nanos(make, v), None
            arrow = pa.timestamp("us", "UTC") if is_time else pa.duration("us")
            return arrow, lambda v, _: _time(v, is_time), lambda v: _of_time(make, v, is_time), None
        if name in WRAPPERS:
            arrow, read, write, _ = self._value(descriptor.fields_by_name["value"], around)
            make = self._class_of(descriptor)
            return arrow, lambda v, budget: read(v.value, budget), lambda v: make(value=write(v)), None
        if name in JSON:
            make = self._class_of(descriptor)
            return pa.string(), lambda v, _: _json(v), lambda v: _of_json(v, make), None
        if not descriptor.fields:
            make = self._class_of(descriptor)
            return pa.bool_(), lambda _v, _b: True, lambda v: _of_flag(v, make), None
        message = self.message(descriptor, around)
        arrow = pa.struct([(each.name, each.arrow) for each in message.fields])
        return arrow, message.read, None, message


def is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    # Newer runtimes lack `label`, and older ones lack `is_repeated`.
    repeated = getattr(field, "is_repeated", None)
    return bool(repeated if repeated is not None else field.label == field.LABEL_REPEATED)


def _number_of(value: Any, numbers: dict[str, int]) -> int:
    if isinstance(value, str) and value not in numbers and value.lstrip("-").isdecimal():
        return int(value)
    if not isinstance(value, str) or value not in numbers:
        raise ValueError(f"must be one of {', '.join(numbers)} (got {value!r:.60})")
    return numbers[value]


def _time(value: Any, is_time: bool) -> datetime | timedelta:
    if value.nanos % 1000:
        raise ValueError(f"{value.nanos} ns are no whole microseconds: the option timestamps=ns keeps them")
    length = timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    return EPOCH + length if is_time else length


def _of_time(make: Any, value: Any, is_time: bool) -> Any:
    if is_time and isinstance(value, datetime) and value.tzinfo is not None:
        value = value - EPOCH
    elif is_time or not isinstance(value, timedelta):
        raise ValueError(f"{value!r:.60} is not a {'time with an offset from UTC' if is_time else 'timedelta'}")
    return _of_nanos(make, value // timedelta(microseconds=1) * 1000)


def _nanos(value: Any) -> int:
    nanos: int = value.seconds * NS + value.nanos
    if not -INT_64 <= nanos < INT_64:
        raise ValueError(f"{value.seconds} s are beyond 64 bits of nanoseconds")
    return nanos


def _of_nanos(make: Any, value: Any) -> Any:
    if type(value) is not int:
        raise ValueError(f"{value!r:.60} is not a number of nanoseconds")
    seconds, nanos = divmod(value, NS)
    if nanos and seconds < 0 and make.DESCRIPTOR.full_name == TIMES[1]:
        # The seconds and nanoseconds of a duration must have the same sign.
        seconds, nanos = seconds + 1, nanos - NS
    return make(seconds=seconds, nanos=nanos)


def _json(value: Any) -> str:
    from google.protobuf import json_format

    return json.dumps(json_format.MessageToDict(value), ensure_ascii=False, separators=(",", ":"))


def _of_json(value: Any, make: Any) -> Any:
    from google.protobuf import json_format

    # In these messages, all numbers are doubles.
    return json_format.ParseDict(json.loads(value, parse_int=_double, parse_float=_double), make())


def _double(text: str) -> float:
    value = float(text)
    if not is_held(text, value):
        raise ValueError(f"{shown(text)} has more digits than a double holds")
    return value


def _of_flag(value: Any, make: Any) -> Any:
    if type(value) is not bool:
        raise ValueError(f"{value!r:.60} is not a boolean")
    return make() if value else None
