"""What must hold of every stream, whatever the network does. A checker raises ``Violation`` at once when it does not."""

from __future__ import annotations

from collections import deque


class Violation(AssertionError):
    """A promise of the protocol was broken."""


class StreamChecker:
    """Compares what one subscriber gets with what the publisher offered: order, loss, duplicates, content, positions.

    ``offered`` is called with each accepted message in order; ``delivered`` with each message that arrives.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.offered_count = 0
        self.delivered_count = 0
        self._outstanding: deque[bytes] = deque()
        self._position = -1

    def offered(self, message: bytes) -> None:
        self._outstanding.append(message)
        self.offered_count += 1

    def delivered(self, message: bytes, position: int) -> None:
        """One message arrived, whose stream position after it is ``position``."""
        if not self._outstanding:
            raise Violation(
                f"{self.name}: message {self.delivered_count} arrived, but only {self.offered_count} were offered"
            )
        expected = self._outstanding.popleft()
        if message != expected:
            raise Violation(
                f"{self.name}: message {self.delivered_count} differs: {len(message)} bytes {message[:24].hex()}, "
                f"expected {len(expected)} bytes {expected[:24].hex()} (lost, duplicated or out of order)"
            )
        if position <= self._position:
            raise Violation(f"{self.name}: position went from {self._position} to {position}")
        self._position = position
        self.delivered_count += 1

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def finish(self) -> None:
        """Nothing may be missing now."""
        if self._outstanding:
            raise Violation(f"{self.name}: {len(self._outstanding)} of {self.offered_count} messages never arrived")


class MonotoneChecker:
    """A value that may only grow, such as a position counter."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._last: int | None = None

    def observe(self, value: int) -> None:
        if self._last is not None and value < self._last:
            raise Violation(f"{self.name} went back from {self._last} to {value}")
        self._last = value
