"""The result of decoding: rows, and the messages that could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Decoded:
    """The rows of several messages. A message may have any number of rows. One in ``problems`` has none.

    Attributes:
        columns: An Arrow array for each field, in the schema's order.
        origins: For each row, the index of its message among the payloads.
        problems: Why messages are unreadable, by index.
        rescued: The fields that the schema lacks, as a JSON object, by row index.

    Example:
        >>> Decoded([pa.array([1, 2])], origins=[0, 2], problems={1: "ValueError: no JSON"})
    """

    columns: list[Any]
    origins: Sequence[int]
    problems: dict[int, str] = field(default_factory=dict)
    rescued: dict[int, str] = field(default_factory=dict)
