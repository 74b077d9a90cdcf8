"""Serialisation: how a message with handles in it becomes a payload with attachments, and back.

A `Serializer` encodes a message and calls ``attach`` with each handle that it meets; what it gets is an index to write
in the handle's place. Decoding, it calls ``detach`` with an index and gets the handle. Both sides agree through
connection headers: the client offers the header of each serialiser it has, the server answers with the one that it
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from mainstem.errors import ConfigurationError, LocalProtocolError


class Handle:
    """What a serialiser recognises as a channel half: the base of `Sender` and `Receiver`."""

    __slots__ = ()
    is_sender: ClassVar[bool]


AttachFunction = Callable[[Any], int]
DetachFunction = Callable[[int], Any]


class Serializer(Protocol):
    """A way to encode messages. ``header`` names it in the connection headers; empty for one that needs no
    agreement."""

    header: str

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        """The message's payload; ``attach`` takes a handle and returns its index."""
        ...

    def decode(self, payload: bytes, detach: DetachFunction) -> Any:
        """The message of a payload; ``detach`` takes an index and returns the handle."""
        ...


@dataclass(slots=True)
class Message:
    """A message without a serialiser: bytes, and handles beside them."""

    payload: bytes
    attachments: Sequence[Any] = ()


class RawSerializer:
    """Messages are bytes, or a `Message` where handles go with them. The default."""

    header = ""

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        if isinstance(message, Message):
            for handle in message.attachments:
                attach(handle)
            return bytes(message.payload)
        if isinstance(message, bytes | bytearray | memoryview):
            return bytes(message)
        raise LocalProtocolError(
            f"a message of type {type(message).__name__}: without a serialiser, a message is bytes or a Message",
            rule="message type",
        )

    def decode(self, payload: bytes, detach: DetachFunction) -> Any:
        handles: list[Any] = []
        while True:
            try:
                handles.append(detach(len(handles)))
            except IndexError:
                break
        return Message(payload, handles) if handles else payload


_SENDER_EXTENSION = 1
_RECEIVER_EXTENSION = 2


class MsgspecSerializer:
    """MessagePack by msgspec: any value that msgspec encodes, with handles anywhere in it.

    A handle is an extension value: type 1 for a sender, 2 for a receiver, holding the index as four bytes, big-endian.
    """

    header = "msgspec-6e0d1f"

    def __init__(self, type: Any = Any) -> None:  # noqa: A002 - msgspec's own word
        try:
            import msgspec
        except ImportError as error:
            raise ConfigurationError(
                "MsgspecSerializer needs msgspec: pip install 'mainstem[serialisation]'"
            ) from error
        self._msgspec = msgspec
        self._type = type

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        ext = self._msgspec.msgpack.Ext

        def hook(value: Any) -> Any:
            kind = _handle_kind(value)
            if kind is None:
                raise NotImplementedError(f"a value of type {type(value).__name__} cannot be encoded")
            return ext(kind, attach(value).to_bytes(4, "big"))

        return bytes(self._msgspec.msgpack.Encoder(enc_hook=hook).encode(message))

    def decode(self, payload: bytes, detach: DetachFunction) -> Any:
        def hook(code: int, data: memoryview) -> Any:
            if code not in (_SENDER_EXTENSION, _RECEIVER_EXTENSION):
                raise ValueError(f"extension type {code}")
            handle = detach(int.from_bytes(data, "big"))
            if _handle_kind(handle) != code:
                raise ValueError("a handle of the other kind")
            return handle

        def accept(kind: type, value: Any) -> Any:
            if isinstance(value, kind):
                return value
            raise ValueError(f"a {type(value).__name__} where a {kind.__name__} should be")

        return self._msgspec.msgpack.Decoder(self._type, ext_hook=hook, dec_hook=accept).decode(payload)


_SENDER_TAG = 40_961
_RECEIVER_TAG = 40_962


class CborSerializer:
    """CBOR by cbor2: a handle is its index under tag 40961 for a sender, 40962 for a receiver."""

    header = "cbor-3b91ce"

    def __init__(self) -> None:
        try:
            import cbor2
        except ImportError as error:
            raise ConfigurationError("CborSerializer needs cbor2: pip install 'mainstem[serialisation]'") from error
        self._cbor2 = cbor2

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        tag = self._cbor2.CBORTag

        def default(encoder: Any, value: Any) -> None:
            kind = _handle_kind(value)
            if kind is None:
                raise TypeError(f"a value of type {type(value).__name__} cannot be encoded")
            encoder.encode(tag(_SENDER_TAG if kind == _SENDER_EXTENSION else _RECEIVER_TAG, attach(value)))

        return bytes(self._cbor2.dumps(message, default=default))

    def decode(self, payload: bytes, detach: DetachFunction) -> Any:
        def hook(tag: Any, _immutable: Any = False) -> Any:
            if tag.tag not in (_SENDER_TAG, _RECEIVER_TAG):
                return tag
            handle = detach(tag.value)
            if (_handle_kind(handle) == _SENDER_EXTENSION) != (tag.tag == _SENDER_TAG):
                raise ValueError("a handle of the other kind")
            return handle

        return self._cbor2.loads(payload, tag_hook=hook)


def _handle_kind(value: Any) -> int | None:
    if not isinstance(value, Handle):
        return None
    return _SENDER_EXTENSION if value.is_sender else _RECEIVER_EXTENSION


RAW = RawSerializer()


def offer_headers(serializers: Sequence[Serializer]) -> list[tuple[str, bytes]]:
    """The connection headers by which a client offers its serialisers, its favourite first."""
    return [(serializer.header, b"") for serializer in serializers if serializer.header]


def choose(serializers: Sequence[Serializer], headers: Sequence[tuple[str, bytes]]) -> Serializer | None:
    """The first of the peer's headers that one of these serialisers answers to; None where none does.

    A serialiser without a header is taken where the peer names none of those that have one.
    """
    by_header = {serializer.header: serializer for serializer in serializers}
    for key, _ in headers:
        if key and key in by_header:
            return by_header[key]
    return by_header.get("")
