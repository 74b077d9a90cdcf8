"""A fold: frames of one key in, rows of a few kinds out, with a state between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mainstem.capture.schema import Column

if TYPE_CHECKING:
    from mainstem.analysis.folds.events import Events

REVISION = Column("revision", "bigint", "frames of this key that had been read when the row last changed")


class Row(NamedTuple):
    """One row: its table, its revision, and its values by column (null if missing)."""

    kind: str
    revision: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One table that a fold makes. Rows that agree in the fold's keys and in ``identity`` are versions of one row."""

    name: str
    columns: tuple[Column, ...]
    instant: str
    """The column in nanoseconds that holds when a row was."""
    identity: tuple[str, ...] = ()


class Fold(ABC):
    """Turns the frames of one key into rows. ``state.dump`` must be able to write ``state``, which counts frames in ``seen``."""

    name: str
    keys: tuple[tuple[Column, str], ...]
    """The columns that make a key, each with its expression over ``frames``; never null."""
    inputs: dict[str, str]
    """Further columns by name, each with its expression over ``frames``: whole numbers (never null), or texts."""
    where: str
    """Which frames are read, as an expression."""
    kinds: tuple[Kind, ...]

    @abstractmethod
    def fresh(self) -> Any:
        """The state before the first frame."""

    @abstractmethod
    def feed(self, state: Any, events: Events) -> list[Row]:
        """Process the next frames; return rows that will not change any more."""

    @abstractmethod
    def pending_rows(self, state: Any) -> list[Row]:
        """The current form of rows that may still change."""

    def kind(self, name: str) -> Kind:
        return next(kind for kind in self.kinds if kind.name == name)


RTT = Kind(
    "rtt",
    (
        Column("protocol", "string", "aeron, bymux or jmux"),
        Column("time_ns", "bigint", "when the reply passed"),
        Column("packet", "bigint", "number of its packet in its file"),
        Column("frame_index", "int", "which frame of that packet"),
        Column(
            "method", "string",
            "'RTTM' (request to reply), 'NAK' (first NAK to the data sent again), 'PING' (bymux, Jmux: ping to pong)",
        ),
        Column("rtt_ns", "bigint", "as the capture saw it: between the capture and the side that replied, there and back"),
    ),
    "time_ns",
    ("time_ns", "packet", "frame_index", "method"),
)  # fmt: skip
"""What a row of ``rtt`` is, whichever protocol it comes from."""
