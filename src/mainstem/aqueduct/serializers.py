"""Convert messages with handles in them to payloads with attachments, and back.

A `Serializer` encodes a message and calls ``attach`` with each handle it finds, which returns an index to write in place of the
handle. When decoding, it calls ``detach`` with an index, which returns the handle. The two sides agree on a serializer through
connection headers: the client offers the header of each of its serializers, and the server responds with the one it chose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from mainstem.errors import LocalProtocolError, needs_extras


class Handle:
    """Base class of `Sender` and `Receiver`, by which serializers recognize channel halves."""

    __slots__ = ()
    is_sender: ClassVar[bool]

    @property
    def _pipe(self) -> Any:
        """The channel's `Pipe`; None if this is not a handle of Mainstem's."""
        return None


AttachFunction = Callable[[Any], int]
"""Adds a sender or receiver to the message that is being encoded, and returns its index in the message."""
DetachFunction = Callable[[int], Any]
"""Returns the sender or receiver with the given index in the message that is being decoded."""


class Serializer(Protocol):
    """A way to encode messages.

    Attributes:
        header: The serializer's name in connection headers; empty if the two sides do not need to agree on it.

    Example:
        >>> class Text:
        ...     header = "text-1"
        ...     def encode(self, message, attach):
        ...         return message.encode()
        ...     def decode(self, payload, detach):
        ...         return payload.decode()
    """

    header: str

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        """Encode a message.

        Args:
            message: The object that the application sends.
            attach: Called with each handle in the message; returns the handle's index.

        Returns:
            The payload.
        """
        ...

    def decode(self, payload: bytes, detach: DetachFunction) -> Any:
        """Decode a message. The receive call turns any exception into a RemoteProtocolError.

        Args:
            payload: The bytes that `encode` returned on the peer's side.
            detach: Called with an index; returns the handle. Each index can be used only once.

        Returns:
            The object that the application receives.
        """
        ...


@dataclass(slots=True)
class Message:
    """A message for connections without a serializer: bytes, with handles beside them.

    Attributes:
        payload: The bytes.
        attachments: The senders and receivers that travel with the payload, in order.

    Example:
        >>> sender, receiver = channel()
        >>> connection.sender.send(Message(b"subscribe", [sender]))
    """

    payload: bytes
    attachments: Sequence[Any] = ()


class RawSerializer(Serializer):
    """The default serializer: messages are bytes, or a `Message` if handles travel with them."""

    header = ""

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        payload = message.payload if isinstance(message, Message) else message
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise LocalProtocolError(
                f"cannot send {type(payload).__name__} without a serializer: a message must be bytes or a Message of bytes",
                rule="message type",
            )
        if isinstance(message, Message):
            for handle in message.attachments:
                attach(handle)
        return bytes(payload)

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


class MsgspecSerializer(Serializer):
    """Encodes messages as MessagePack with msgspec: any value that msgspec can encode, with handles anywhere in it.

    A handle becomes an extension value of type 1 for a sender or 2 for a receiver, holding the index as four big-endian bytes.

    Args:
        type: The type that messages are decoded to.

    Raises:
        ConfigurationError: msgspec is not installed.

    Example:
        >>> connection = connect("gauges.example", 4433, ca=ca, serializers=[MsgspecSerializer()])
        >>> connection.sender.send({"text": "tide", "response": sender})
    """

    header = "msgspec-6e0d1f"

    def __init__(self, type: Any = Any) -> None:  # noqa: A002 - msgspec's own word
        with needs_extras():
            import msgspec
        self._msgspec = msgspec
        self._type = type

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        ext = self._msgspec.msgpack.Ext

        def hook(value: Any) -> Any:
            code = _SENDER_EXTENSION if _is_sender(value) else _RECEIVER_EXTENSION
            return ext(code, attach(value).to_bytes(4, "big"))

        return bytes(self._msgspec.msgpack.Encoder(enc_hook=hook).encode(message))

    def decode(self, payload: bytes, detach: DetachFunction) -> Any:

        def hook(code: int, data: memoryview) -> Any:
            if code not in (_SENDER_EXTENSION, _RECEIVER_EXTENSION):
                raise ValueError(f"extension type {code}")
            return _detach(detach, int.from_bytes(data, "big"), is_sender=code == _SENDER_EXTENSION)

        def accept(kind: type, value: Any) -> Any:
            if isinstance(value, kind):
                return value
            raise ValueError(f"a {type(value).__name__} where a {kind.__name__} should be")

        return self._msgspec.msgpack.Decoder(self._type, ext_hook=hook, dec_hook=accept).decode(payload)


_SENDER_TAG = 40_961
_RECEIVER_TAG = 40_962


class CborSerializer(Serializer):
    """Encodes messages as CBOR with cbor2. A handle becomes its index, with tag 40961 for a sender or 40962 for a receiver.

    Raises:
        ConfigurationError: cbor2 is not installed.
    """

    header = "cbor-3b91ce"

    def __init__(self) -> None:
        with needs_extras():
            import cbor2
        self._cbor2 = cbor2

    def encode(self, message: Any, attach: AttachFunction) -> bytes:
        tag = self._cbor2.CBORTag

        def default(encoder: Any, value: Any) -> None:
            encoder.encode(tag(_SENDER_TAG if _is_sender(value) else _RECEIVER_TAG, attach(value)))

        return bytes(self._cbor2.dumps(message, default=default))

    def decode(self, payload: bytes, detach: DetachFunction) -> Any:

        def hook(tag: Any, _immutable: Any = False) -> Any:
            if tag.tag not in (_SENDER_TAG, _RECEIVER_TAG):
                return tag
            return _detach(detach, tag.value, is_sender=tag.tag == _SENDER_TAG)

        return self._cbor2.loads(payload, tag_hook=hook)


def _is_sender(value: Any) -> bool:
    """Return whether a value is a sender; False for a receiver. Raises TypeError if it is neither."""
    if not isinstance(value, Handle):
        raise TypeError(f"a value of type {type(value).__name__} cannot be encoded")
    return value.is_sender


def _detach(detach: DetachFunction, index: int, *, is_sender: bool) -> Any:
    handle = detach(index)
    if handle.is_sender is not is_sender:
        raise ValueError("a sender where a receiver should be, or the reverse")
    return handle


RAW = RawSerializer()


def offer_headers(serializers: Sequence[Serializer]) -> list[tuple[str, bytes]]:
    """Return the connection headers with which a client offers its serializers, the preferred one first."""
    return [(serializer.header, b"") for serializer in serializers if serializer.header]


def choose(serializers: Sequence[Serializer], headers: Sequence[tuple[str, bytes]]) -> Serializer | None:
    """Return the serializer that the peer's first matching header names, or None.

    If no header matches, fall back to the serializer without a header, if there is one.
    """
    by_header = {serializer.header: serializer for serializer in serializers}
    for key, _ in headers:
        if key and key in by_header:
            return by_header[key]
    return by_header.get("")
