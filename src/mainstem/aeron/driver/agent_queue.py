"""The queue into an agent's thread, the only way for one agent to make another do something."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# A duty cycle runs this many commands at most, so that a burst of them does not stop the streams.
COMMANDS_PER_CYCLE = 64


class AgentQueue(deque[T]):
    """A queue that any thread appends to and one agent takes from.

    Deque operations are atomic, so no lock is needed. ``on_append``, if set, is called after each append to wake the agent's loop.
    """

    on_append: Callable[[], None] | None = None

    def append(self, item: T) -> None:
        super().append(item)
        if self.on_append is not None:
            self.on_append()


class CommandQueue(AgentQueue["Callable[[], None]"]):
    def run(self) -> int:
        """Run the queued calls in the agent's thread; return how many there were. A call that raises is not repeated."""
        done = 0
        while self and done < COMMANDS_PER_CYCLE:
            done += 1
            self.popleft()()
        if self and self.on_append is not None:
            self.on_append()
        return done
