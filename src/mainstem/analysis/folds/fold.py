"""The interface of folds: frames of one key go in, rows of several tables come out, and a state is kept in between."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from mainstem.capture.schema import Column
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


# -- states as JSON bytes, for checkpoints -----------------------------------------------------------------------------
#
# Each class is stored under its registered name, so that renaming the class does not break checkpoints. A later release may add
# fields with defaults, and can still read states without them. Any other change needs a new version.


_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}
# The key that holds a dataclass's registered name, stored alongside its fields.
_MARK = "#"
VERSION = 1
_VERSION, _STATE = "version", "state"
T = TypeVar("T")


def checkpointed(name: str) -> Callable[[type[T]], type[T]]:
    def register(kind: type[T]) -> type[T]:
        assert name not in _CLASSES, f"{name} is the name of two classes"
        _CLASSES[name], _NAMES[kind] = kind, name
        return kind

    return register


def _plain(value: object) -> dict[str, object]:
    name = _NAMES.get(type(value))
    if name is None or not is_dataclass(value):
        raise TypeError(f"{type(value).__name__} cannot be kept in a state")
    return {_MARK: name} | {item.name: getattr(value, item.name) for item in fields(value)}


def _instance(values: dict[str, Any]) -> Any:
    name = values.pop(_MARK, None)
    if name is None:
        return values
    kind = _CLASSES.get(name)
    if kind is None:
        raise ConfigurationError(f"the checkpoint has a state {name!r}, which this release does not have")
    if unknown := sorted(values.keys() - {item.name for item in fields(kind)}):
        raise ConfigurationError(f"the checkpoint's {name} has {unknown[0]!r}, which this release does not have")
    return kind(**values)


def dump(state: object) -> bytes:
    return json.dumps({_VERSION: VERSION, _STATE: state}, default=_plain, separators=(",", ":")).encode()


def load(data: bytes) -> Any:
    """Load a state that this release or an earlier one wrote. Raises ConfigurationError if a later release wrote it."""
    state = json.loads(data, object_hook=_instance)
    if state[_VERSION] > VERSION:
        raise ConfigurationError(
            f"the checkpoint has states of version {state[_VERSION]}; this release reads up to version {VERSION}"
        )
    return state[_STATE]


# -- frames as columns of numbers --------------------------------------------------------------------------------------


TIMES = ("time_ns", "packet", "frame_index")
"""The columns that frames are sorted by. Every fold has them among its inputs."""
# In states, the time 0 means that something has not happened. A device without a clock begins in 1970, where a frame may have it.
TIME_INPUTS = {name: name for name in TIMES} | {"time_ns": "greatest(time_ns, 1)"}


class Events:
    """Columns of equal length: int64 arrays, or object arrays for strings."""

    def __init__(self, columns: Mapping[str, Any], length: int) -> None:
        self._columns, self.length = columns, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def part(self, start: int, stop: int) -> Events:
        return Events({name: column[start:stop] for name, column in self._columns.items()}, stop - start)

    def rows(self, names: Iterable[str], where: Any) -> list[tuple[Any, ...]]:
        """Return the selected frames as tuples of Python values."""
        return list(zip(*(self._columns[name][where].tolist() for name in names), strict=True))


PREFIX = "_"
"""The prefix of a fold's input columns in a DataFrame, because a key may have the same name as an input."""


def from_arrow(batch: Any, names: Iterable[str]) -> Events:
    """Return the prefixed columns of a record batch whose rows are sorted."""
    columns = {}
    for name in names:
        column = batch.column(PREFIX + name)
        if str(column.type) in ("string", "large_string"):
            columns[name] = column.to_numpy(zero_copy_only=False)
        else:
            columns[name] = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return Events(columns, batch.num_rows)


def from_pandas(frame: Any, names: Iterable[str]) -> Events:
    names = tuple(names)
    order = np.lexsort([frame[PREFIX + name].to_numpy() for name in reversed(TIMES)])
    columns = {}
    for name in names:
        values = frame[PREFIX + name].to_numpy()[order]
        columns[name] = values if values.dtype == object else values.astype(np.int64, copy=False)
    return Events(columns, len(order))


REVISION = Column("revision", "bigint", "frames of this key that had been read when the row last changed")


class Row(NamedTuple):
    """One row: its table, its revision, and its values by column. Missing values are null."""

    kind: str
    revision: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """One table that a fold produces. Rows with the same fold keys and ``identity`` are versions of one row."""

    name: str
    columns: tuple[Column, ...]
    instant: str
    """The column with the time of the row, in nanoseconds."""
    identity: tuple[str, ...] = ()


class Fold(ABC):
    """A function from the frames of one key to rows. Its state must be serializable by ``dump`` and count frames in ``seen``."""

    name: str
    keys: tuple[tuple[Column, str], ...]
    """The key columns, each with an expression over ``frames`` that is never null."""
    inputs: dict[str, str]
    """The other columns by name, each with an expression over ``frames`` that gives a string, or an integer that is never null."""
    where: str
    """The condition that selects frames, as an expression."""
    kinds: tuple[Kind, ...]
    state: type[Any]
    """The class of the state. Its defaults are the state before the first frame."""

    def fresh(self) -> Any:
        return self.state()

    @abstractmethod
    def feed(self, state: Any, events: Events) -> list[Row]:
        """Process the next frames. Returns the rows that are final."""

    @abstractmethod
    def pending_rows(self, state: Any) -> list[Row]:
        """Return the current form of rows that may still change."""

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
"""The table ``rtt``, which is the same for every protocol."""


def moment(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that say when and where a frame passed."""
    return {name: event[name] for name in TIMES}


def round_trip(protocol: str, method: str, event: Mapping[str, Any], since_ns: int, revision: int) -> Row:
    """Return the row of a round trip from ``since_ns`` to a frame."""
    values = {"protocol": protocol, "method": method, "rtt_ns": event["time_ns"] - since_ns}
    return Row(RTT.name, revision, moment(event) | values)
