"""What must hold of every stream, whatever the network does. A checker raises ``Violation`` at once when it does not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


class Violation(AssertionError):
    """A promise of the protocol was broken."""


@dataclass
class Checked:
    """How much the checkers of this process have checked since it was last set back."""

    messages: int = 0
    bytes: int = 0


CHECKED = Checked()


class StreamChecker:
    """Compares what one subscriber receives with what was offered: order, loss, duplicates, content, positions.

    Call ``offered`` with each accepted message in order, ``delivered`` with each message that arrives, ``finish`` at the end.

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
        """Notes a message that the publication accepted.

        Args:
            message: The payload.

        Example:
            ``checker.offered(b"tide")``
        """
        self._outstanding.append(message)
        self.offered_count += 1

    def delivered(self, message: bytes, position: int) -> None:
        """Checks a message that arrived.

        Args:
            message: The payload.
            position: The stream position after it.

        Raises:
            Violation: It is not the next one, it differs, or the position did not grow.

        Example:
            ``checker.delivered(b"tide", 64)``
        """
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
        CHECKED.messages += 1
        CHECKED.bytes += len(message)

    @property
    def outstanding(self) -> int:
        """How many messages were offered and have not arrived."""
        return len(self._outstanding)

    def finish(self) -> None:
        """Checks that nothing is missing. Call it when the stream has ended.

        Raises:
            Violation: Messages never arrived.

        Example:
            ``checker.finish()``
        """
        if self._outstanding:
            raise Violation(f"{self.name}: {len(self._outstanding)} of {self.offered_count} messages never arrived")


class MonotoneChecker:
    """Checks a value that may only grow, such as a position counter.

    Args:
        name: Names the value in errors.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._last: int | None = None

    def observe(self, value: int) -> None:
        """Checks the next reading.

        Args:
            value: The reading.

        Raises:
            Violation: It is less than the last one.

        Example:
            ``checker.observe(counter.get())``
        """
        if self._last is not None and value < self._last:
            raise Violation(f"{self.name} went back from {self._last} to {value}")
        self._last = value
