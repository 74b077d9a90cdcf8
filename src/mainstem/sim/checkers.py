"""Invariants of every stream, whatever the network does. A checker raises ``Violation`` as soon as one is broken."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sized


class Violation(AssertionError):
    """A promise of the protocol was broken."""


@dataclass
class Checked:
    """How much this process's checkers have checked since the last reset."""

    messages: int = 0
    bytes: int = 0

    def count(self, *payloads: Sized) -> None:
        self.messages += len(payloads)
        self.bytes += sum(map(len, payloads))


CHECKED = Checked()


class StreamChecker:
    """Compare what one subscriber receives with what was offered: order, loss, duplicates, content, positions.

    Call ``offered`` with each accepted message in order, ``delivered`` with each message that arrives, and ``finish`` at the end.

    Args:
        name: Names the stream in errors.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.offered_count = 0
        self.delivered_count = 0
        self._outstanding: deque[bytes] = deque()
        self._position = -1

    def offered(self, message: bytes) -> None:
        """Note a ``message`` that the publication accepted."""
        self._outstanding.append(message)
        self.offered_count += 1

    def delivered(self, message: bytes, position: int) -> None:
        """Check a ``message`` that arrived, and the stream ``position`` after it.

        Raises:
            Violation: The message is not the next one offered, it differs, or the position did not grow.
        """
        if not self._outstanding:
            raise Violation(
                f"{self.name}: received message {self.delivered_count}, but only {self.offered_count} were offered"
            )
        expected = self._outstanding.popleft()
        if message != expected:
            raise Violation(
                f"{self.name}: message {self.delivered_count} differs (lost, duplicated or out of order): received "
                f"{len(message)} bytes {message[:24].hex()}, expected {len(expected)} bytes {expected[:24].hex()}"
            )
        if position <= self._position:
            raise Violation(f"{self.name}: position went from {self._position} to {position}, but must grow")
        self._position = position
        self.delivered_count += 1
        CHECKED.messages += 1
        CHECKED.bytes += len(message)

    @property
    def outstanding(self) -> int:
        """The number of messages offered that have not arrived."""
        return len(self._outstanding)

    def finish(self) -> None:
        """Check that nothing is missing. Call it when the stream has ended.

        Raises:
            Violation: Messages never arrived.
        """
        if self._outstanding:
            raise Violation(f"{self.name}: {len(self._outstanding)} of {self.offered_count} messages never arrived")


class MonotoneChecker:
    """Check a value that must never decrease, such as a position counter.

    Args:
        name: Names the value in errors.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._last: int | None = None

    def observe(self, value: int) -> None:
        """Check the next reading, ``value``.

        Raises:
            Violation: It is less than the previous one.
        """
        if self._last is not None and value < self._last:
            raise Violation(f"{self.name} went back from {self._last} to {value}")
        self._last = value
