"""What the commands that encode or decode messages share: the options, and JSON lines from and to messages."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem.cli._recordings import pairs
from mainstem.codecs import find_codec
from mainstem.codecs.lookup import OWN
from mainstem.codecs.numerals import is_held
from mainstem.errors import ConfigurationError, MissingExtraError, StoreError
from mainstem.recording.export import json_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.codecs import Codec

CodecOption = Annotated[
    str, typer.Option("--codec", help=f"The format of messages: {', '.join(OWN)}, an entry point, or module:Class.")
]
CodecOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", help="An option of the codec, as in schema=trade.avsc; repeatable."),
]


def codec_of(name: str, options: Sequence[str] | None) -> Codec | None:
    """The codec of these options; None without a name. Raises ConfigurationError."""
    if options and not name:
        raise ConfigurationError("--option is for a codec: --codec says which one")
    return find_codec(name, pairs(options, "--option")) if name else None


def decoded_lines(codec: Codec, message: bytes) -> bytes:
    """A JSON line for each row of a message; one with ``problem`` and ``payload`` where it cannot be read."""
    try:
        return _lines(codec.decode(message))
    except (StoreError, MissingExtraError):
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace").decode()
        return _lines([{"problem": problem, "payload": b64encode(message).decode()}])


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json_of(row) + "\n" for row in rows).encode()


class LineEncoder:
    """JSON lines as messages. Where the codec has columns of its own, texts become their times and decimals."""

    def __init__(self, codec: Codec) -> None:
        self._codec, self._lines, self._schema, self._count = codec, find_codec("json"), None, 0
        try:
            self._schema = codec.schema([])
        except ConfigurationError:
            raise
        except ValueError:
            # The format has no types of its own: those of JSON are what there is.
            self._schema = None

    def encode(self, line: bytes) -> bytes:
        """A message of a line. Raises ConfigurationError that names the line."""
        self._count += 1
        try:
            return self._codec.encode(self._row(line))
        except (StoreError, MissingExtraError):
            raise
        except Exception as error:
            raise ConfigurationError(f"line {self._count}: {error}") from None

    def _row(self, line: bytes) -> dict[str, Any]:
        (row,) = self._lines.decode(line)
        if self._schema is None:
            exact: dict[str, Any] = json.loads(line, parse_float=_float)
            return exact
        decoded = self._lines.decode_batch([line], self._schema)
        if decoded.problems or decoded.rescued:
            raise ValueError(decoded.problems.get(0) or f"the schema has no field for {decoded.rescued[0]}")
        columns = zip(self._schema.names, decoded.columns, strict=True)
        nested: dict[str, Any] = {"maps_as_pydicts": "strict"}
        # A field that the line lacks has the format's default, which is not always null.
        return {name: column.to_pylist(**nested)[0] for name, column in columns if name in row}


def _float(text: str) -> float:
    """A number for a format that has no decimals. Raises ValueError for one that would be rounded."""
    value = float(text)
    if not is_held(text, value):
        raise ValueError(f"{text} has more digits than a floating-point number holds")
    return value
