"""What a parser is, and the way from Python rows to Arrow columns in which a bad message never stops the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa


@dataclass
class Parsed:
    """The rows of some messages: ``columns`` in the schema's order, for each row the index of its message, and why some failed.

    A message may give any number of rows. One that is in ``problems`` gives none.
    """

    columns: list[Any]
    origins: list[int]
    problems: dict[int, str] = field(default_factory=dict)


class Parser(Protocol):
    """An entry point of ``mainstem.parsers`` is a class like this; it is made with the options of the command line.

    It goes to Spark's workers by pickle, so it holds plain values only.
    """

    def __init__(self, **options: str) -> None: ...

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """The columns, from a sample of messages when nothing else says what they are; ValueError when they do not tell."""
        ...

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Parsed:
        """The rows of some messages, as columns of exactly that schema."""
        ...


class RowParser(ABC):
    """A parser that makes dictionaries, a message at a time: easy to write, and fast enough for most."""

    def __init__(self, **options: str) -> None:
        if options:
            raise ValueError(f"{type(self).__name__} has no option {min(options)!r}")

    @abstractmethod
    def rows(self, payload: bytes) -> Iterable[dict[str, Any]]:
        """The rows of one message. Whatever it raises is told beside the message."""

    def schema(self, sample: Sequence[bytes]) -> pa.Schema:
        """What Arrow finds in the sample's rows."""
        import pyarrow as pa

        rows = [row for payload in sample for row in self.rows(payload)]
        if not rows:
            raise ValueError("there is no message to take the schema from")
        return pa.Table.from_pylist(rows).schema

    def parse(self, payloads: Sequence[bytes], schema: pa.Schema) -> Parsed:
        """The rows of all messages that can be read."""
        rows: list[dict[str, Any]] = []
        origins: list[int] = []
        problems: dict[int, str] = {}
        for i, payload in enumerate(payloads):
            try:
                parsed = list(self.rows(payload))
            except Exception as error:
                problems[i] = f"{type(error).__name__}: {error}"
                continue
            rows += parsed
            origins += [i] * len(parsed)
        return self._columns(rows, origins, schema, problems)

    def column(self, values: list[Any], kind: Any) -> Any:
        """A column of that type. Raises what Arrow raises for a value that is none of it."""
        import pyarrow as pa

        return pa.array(values, kind)

    def _columns(
        self, rows: list[dict[str, Any]], origins: list[int], schema: pa.Schema, problems: dict[int, str]
    ) -> Parsed:
        try:
            columns = [self.column([row.get(item.name) for row in rows], item.type) for item in schema]
        except Exception:
            bad = self._unfit(rows, origins, schema)
            if not bad:
                raise
            good = [k for k, origin in enumerate(origins) if origin not in bad]
            return self._columns([rows[k] for k in good], [origins[k] for k in good], schema, problems | bad)
        return Parsed(columns, origins, problems)

    def _unfit(self, rows: list[dict[str, Any]], origins: list[int], schema: pa.Schema) -> dict[int, str]:
        """The messages whose values do not fit the schema, and why."""
        bad: dict[int, str] = {}
        for row, origin in zip(rows, origins, strict=True):
            for item in schema:
                try:
                    self.column([row.get(item.name)], item.type)
                except Exception as error:
                    bad.setdefault(origin, f"{item.name}: {type(error).__name__}: {error}")
        return bad
