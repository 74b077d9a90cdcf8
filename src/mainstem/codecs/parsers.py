"""Parsers: what codecs were before they could encode. Their classes and names work as they did (``mainstem.spark.parsers``)."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from mainstem.codecs.base import Codec, Decoded, RowCodec
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa


@runtime_checkable
class Parser(Protocol):
    """What turns payloads into typed columns, by the names that codecs had first; a ``Codec`` is the way to write a new one.

    Example:
        >>> parser: Parser = find_parser("csv", {"columns": "id,name"})
    """

    def __init__(self, **options: str) -> None: ...

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """The columns, as ``Codec.schema``.

        Args:
            sample: The first payloads of the recordings; it may be empty.

        Returns:
            The schema of what ``parse`` makes.

        Raises:
            ValueError: The sample does not determine a schema.

        Example:
            >>> find_parser("json", {}).schema([b'{"id": 1}'])
            id: int64
        """
        ...

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """The rows of some messages, as ``Codec.decode_batch``.

        Args:
            payloads: The messages.
            schema: The schema that the columns have, exactly.

        Returns:
            The rows, and the reasons for messages without any.

        Example:
            >>> find_parser("json", {}).parse([b'{"id": 1}', b"{"], schema).origins
            [0]
        """
        ...


class RowParser(RowCodec):
    """A parser that makes dictionaries, a message at a time; a ``RowCodec`` is the way to write a new one.

    Example:
        >>> class Words(RowParser):
        ...     def rows(self, payload):
        ...         return ({"word": word} for word in payload.decode().split())
    """

    @abstractmethod
    def rows(self, payload: bytes) -> Iterable[dict[str, Any]]:
        """The rows of one message; to be overridden. Whatever it raises is the message's problem.

        Args:
            payload: The message.

        Returns:
            A dictionary for each row; a field that it leaves out is null.

        Example:
            >>> list(find_parser("json", {}).rows(b'{"id": 1}'))
            [{'id': 1}]
        """

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        """The rows of one message, as ``rows`` has them.

        Args:
            payload: The message.

        Returns:
            A dictionary for each row.

        Example:
            >>> Words().decode(b"ebb flow")
            [{'word': 'ebb'}, {'word': 'flow'}]
        """
        return list(self.rows(payload))

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """The rows of all messages that can be read; may be overridden.

        Args:
            payloads: The messages.
            schema: The schema that the columns have; a value that does not fit it is the message's problem.

        Returns:
            The rows, and the reasons for messages without any.

        Example:
            >>> Words().parse([b"ebb flow"], pa.schema([("word", pa.string())])).origins
            [0, 0]
        """
        return super().decode_batch(payloads, schema)

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """As ``parse``.

        Args:
            payloads: The messages.
            schema: The schema that the columns have.

        Returns:
            The rows, and the reasons for messages without any.

        Example:
            >>> Words().decode_batch([b"ebb flow"], pa.schema([("word", pa.string())])).origins
            [0, 0]
        """
        return self.parse(payloads, schema)


class ParserCodec:
    """A parser as a codec that only decodes."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser

    def decode(self, payload: bytes) -> list[dict[str, Any]]:
        """The rows of one message, of the parser's own columns."""
        decoded = self._parser.parse([payload], self.schema([payload]))
        if decoded.problems:
            raise ValueError(decoded.problems[0])
        names = self.schema([payload]).names
        columns = [column.to_pylist() for column in decoded.columns]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """As the parser."""
        return self._parser.schema(sample)

    def decode_batch(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """As the parser's ``parse``."""
        return self._parser.parse(payloads, schema)

    def encode(self, row: dict[str, Any]) -> bytes:  # noqa: ARG002
        """Raises ConfigurationError: parsers only decode."""
        raise ConfigurationError(f"{type(self._parser).__name__} only decodes")

    def encode_batch(self, batch: pa.RecordBatch) -> list[bytes]:  # noqa: ARG002
        """Raises ConfigurationError: parsers only decode."""
        raise ConfigurationError(f"{type(self._parser).__name__} only decodes")


class CodecParser:
    """A codec by the names of a parser."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def rows(self, payload: bytes) -> list[dict[str, Any]]:
        """As the codec's ``decode``."""
        return self._codec.decode(payload)

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """As the codec."""
        return self._codec.schema(sample)

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Decoded:
        """As the codec's ``decode_batch``."""
        return self._codec.decode_batch(payloads, schema)

    def column(self, values: list[Any], kind: Any) -> Any:
        """As the codec's ``column``, where it has one."""
        return self._codec.column(values, kind)  # type: ignore[attr-defined]


def as_codec(parser: Codec | Parser) -> Codec:
    """A codec as it is, and a parser as a codec that decodes."""
    return cast("Codec", parser) if hasattr(parser, "decode_batch") else ParserCodec(parser)
