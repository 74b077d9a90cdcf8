"""Records as dataclasses whose fields define the layout: ``stream_id: I32`` is a little-endian int32.

An int32 length precedes each text and byte string. Texts are UTF-8 and, like file names, preserve undecodable bytes.
"""

from __future__ import annotations

import struct
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

from mainstem._internal.frozen import MISSING, fields_of, frozen
from mainstem.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

M = TypeVar("M", bound="Message")

MALFORMED_COMMAND = 7  # the error code of docs/protocols/aeron.md, 6.1 for a record that cannot be read

# Neither side writes a longer text; a URI or a path stays below 4096 bytes.
MAX_TEXT_LENGTH = 4095
# A command may carry a channel that is too long for a URI, so that the driver can refuse it with a response like any invalid one.
MAX_CHANNEL_LENGTH = 65535


class Fixed(NamedTuple):
    layout: struct.Struct


class Counted(NamedTuple):
    """Bytes after an int32 length. ``align`` aligns the next field, relative to the record.

    More than ``limit`` bytes make a record malformed, or are dropped if ``truncates`` is set.
    """

    limit: int
    text: bool
    align: int = 1
    truncates: bool = False


I16 = Annotated[int, Fixed(struct.Struct("<h"))]
U16 = Annotated[int, Fixed(struct.Struct("<H"))]
I32 = Annotated[int, Fixed(struct.Struct("<i"))]
I64 = Annotated[int, Fixed(struct.Struct("<q"))]
U64 = Annotated[int, Fixed(struct.Struct("<Q"))]
Bytes16 = Annotated[bytes, Fixed(struct.Struct("<16s"))]
Text = Annotated[str, Counted(MAX_TEXT_LENGTH, text=True)]
Channel = Annotated[str, Counted(MAX_CHANNEL_LENGTH, text=True)]

_LENGTH = struct.Struct("<i")


@frozen
class Message:
    """A record, whose type id is ``TYPE``. Records shorter than ``MIN_LENGTH``, which the driver requires, are padded."""

    TYPE: ClassVar[int]
    MIN_LENGTH: ClassVar[int] = 0

    def encode(self) -> bytes:
        """Return the record's payload. Raises LocalProtocolError if a value does not fit its field."""
        out = bytearray()
        for name, kind, _ in _layout(type(self)):
            value = getattr(self, name)
            if isinstance(kind, Fixed):
                try:
                    out += kind.layout.pack(value)
                except struct.error as error:
                    reason = f"{type(self).__name__}: {name} {value!r} does not fit its field ({error})"
                    raise LocalProtocolError(reason, rule=name) from None
                continue
            data = value.encode("utf-8", "surrogateescape") if kind.text else bytes(value)
            if len(data) > kind.limit:
                reason = f"{type(self).__name__}: {name} of {len(data)} bytes exceeds the maximum of {kind.limit}"
                raise LocalProtocolError(reason, rule=name)
            out += _LENGTH.pack(len(data)) + data
            out += bytes(-len(out) % kind.align)
        return bytes(out).ljust(self.MIN_LENGTH, b"\0")

    @classmethod
    def decode(cls, payload: bytes | memoryview) -> Self:
        """Parse a record's payload. Raises RemoteProtocolError (code 7) if it is too short or a length in it is wrong."""
        at = 0
        values: dict[str, Any] = {}
        for name, kind, optional in _layout(cls):
            if optional and at >= len(payload):
                break
            if isinstance(kind, Fixed):
                cls._need(name, payload, at + kind.layout.size)
                (values[name],) = kind.layout.unpack_from(payload, at)
                at += kind.layout.size
                continue
            cls._need(name, payload, at + 4)
            (length,) = _LENGTH.unpack_from(payload, at)
            at += 4
            if length < 0 or (length > kind.limit and not kind.truncates):
                raise cls._malformed(name, f"length {length} is not in 0 to {kind.limit}")
            cls._need(name, payload, at + length)
            data = bytes(payload[at : at + min(length, kind.limit)])
            values[name] = data.decode("utf-8", "surrogateescape") if kind.text else data
            at += length
            at += -at % kind.align
        return cls(**values)

    @classmethod
    def _need(cls, name: str, payload: bytes | memoryview, end: int) -> None:
        if len(payload) < end:
            raise cls._malformed(name, f"the record ends at byte {len(payload)}, the field at {end}")

    @classmethod
    def _malformed(cls, name: str, why: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"malformed {cls.__name__}: {name}: {why}", rule=name, code=MALFORMED_COMMAND)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(kinds: dict[int, type[Any]], type_id: int) -> Callable[[type[M]], type[M]]:
    """Make a class the record with this type id, and enter it in ``kinds``."""

    def make(cls: type[M]) -> type[M]:
        kinds[type_id] = made = frozen(cls)
        made.TYPE = type_id
        return made

    return make


_LAYOUTS: dict[type[Any], tuple[tuple[str, Fixed | Counted, bool], ...]] = {}


def _layout(cls: type[Any]) -> tuple[tuple[str, Fixed | Counted, bool], ...]:
    """Return the name and kind of each field, and whether it may be absent. Only a last field with a default may be absent."""
    if cls not in _LAYOUTS:
        hints = get_type_hints(cls, include_extras=True)
        declared = fields_of(cls)
        last = [*declared][-1] if declared else ""
        _LAYOUTS[cls] = tuple(
            (name, hints[name].__metadata__[0], name == last and default is not MISSING)
            for name, default in declared.items()
        )
    return _LAYOUTS[cls]
