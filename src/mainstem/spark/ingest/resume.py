"""Checks that a table has exactly what the checkpoint says was written to it, before a query continues there.

Spark numbers micro-batches from 0 for each checkpoint. A table remembers the number of its last micro-batch: in its commits
together with the query's id, or in a Parquet directory's ``_spark_metadata`` without it. A number that is already in the table is
not written again. So the numbers must be those of one query, or messages would be left out:

- The table has every micro-batch before the one that Spark runs next, and may have that one only if Spark repeats it.
- A new checkpoint needs a table without rows, because the query reads every message again.

While a query runs, it locks its checkpoint and, for Parquet, its table. Two drivers could otherwise plan the same micro-batch with
different ends.
"""

from __future__ import annotations

import fcntl
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from mainstem.errors import ConfigurationError
from mainstem.spark.sources.offsets import batch_numbers
from mainstem.store import open_store
from mainstem.store.disk import DISK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

METADATA, LOCK_FILE = "metadata", "_lock"
MAX_METADATA_LENGTH = 1 << 16
NONE = -1


@dataclass(frozen=True)
class Checkpoint:
    """The state of a checkpoint. ``committed`` and ``planned`` are numbers of micro-batches, or -1."""

    location: str
    query_id: str = ""
    committed: int = NONE
    planned: int = NONE

    @property
    def is_new(self) -> bool:
        return self.planned == self.committed == NONE

    @property
    def is_repeated(self) -> bool:
        """Whether Spark runs the last planned micro-batch again, because it was not committed."""
        return self.planned != self.committed

    @property
    def done(self) -> int:
        """The micro-batch before the one that Spark runs next."""
        return self.planned - 1 if self.is_repeated else self.planned


def read_checkpoint(location: str) -> Checkpoint:
    """Read a checkpoint in a local directory. It is new if there is none."""
    store = open_store(location)
    try:
        text = store.read(METADATA, 0, MAX_METADATA_LENGTH)
        query_id = str(msgspec.json.decode(text)["id"])
    except FileNotFoundError:
        query_id = ""
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{location}/{METADATA} is not of a checkpoint: {error}") from None
    numbers = (max(batch_numbers(store, name), default=NONE) for name in ("commits/", "offsets/"))
    return Checkpoint(location, query_id, *numbers)


def check_table(name: str, checkpoint: Checkpoint, last: int, *, is_empty: bool, remedy: str) -> None:
    """Raise ConfigurationError unless a query can continue in a table whose last micro-batch of this query is ``last``."""
    if checkpoint.is_new:
        if not is_empty:
            raise ConfigurationError(
                f"{name} already has rows, and the checkpoint {checkpoint.location} is new, so every message would be read "
                f"again; continue with the checkpoint that wrote the table (`checkpoint`), or {remedy}"
            )
        return
    done = checkpoint.done
    if last == done or (last == done + 1 and checkpoint.is_repeated):
        return
    state = f"{name} has {_up_to(last)} of this query, and the checkpoint {checkpoint.location} has {_up_to(done)}"
    if last < done:
        raise ConfigurationError(
            f"{state}: the table was deleted or replaced; restore it, or delete the checkpoint and what is left of the table to "
            "load every message again"
        )
    raise ConfigurationError(
        f"{state}: the checkpoint was restored from an older copy; use the newer one, or a new checkpoint and another table"
    )


def _up_to(number: int) -> str:
    return "no micro-batch" if number == NONE else f"micro-batches up to {number}"


# -- locks -------------------------------------------------------------------------------------------------------------


class Locks:
    """Locks of directories that a query holds until it ends, or until the process does."""

    # The locks of this process by directory. A query that has ended releases its locks when the next one asks for them.
    _held: dict[Path, Locks] = {}  # noqa: RUF012 - shared on purpose

    def __init__(self, directories: Iterable[Path]) -> None:
        """Lock the directories, which are created. Raises ConfigurationError if another ingest has one of them."""
        self.is_active: Callable[[], bool] = lambda: True
        self._descriptors: dict[Path, int] = {}
        try:
            for directory in {each.resolve() for each in directories}:
                self._lock(directory)
        except BaseException:
            self.release()
            raise

    def _lock(self, directory: Path) -> None:
        holder = self._held.get(directory)
        if holder is not None and not holder.is_active():
            holder.release()
        DISK.make_directory(directory)
        descriptor = DISK.open(directory / LOCK_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            DISK.close(descriptor)
            raise ConfigurationError(
                f"another ingest is using {directory}; stop it first, or use another `out` and `checkpoint`"
            ) from error
        self._descriptors[directory] = descriptor
        self._held[directory] = self

    def hold_for(self, query: Any) -> None:
        """Hold the locks as long as the query is active."""
        self.is_active = lambda: bool(query.isActive)

    def release(self) -> None:
        while self._descriptors:
            directory, descriptor = self._descriptors.popitem()
            del self._held[directory]
            with suppress(OSError):
                DISK.close(descriptor)
