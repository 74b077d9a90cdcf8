"""The queue into an agent's thread: the only way in which one agent makes another do something."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# A duty cycle runs this many commands at most, so that a burst of them does not stop the streams.
COMMANDS_PER_CYCLE = 64


class AgentQueue(deque[T]):
    """A queue that any thread appends to and that one agent takes from.

    Appending to and taking from a deque are atomic, which is all that two threads need here. ``on_append``, once set, is
    called after each item is appended: it wakes the agent's compiled loop.
    """

    on_append: Callable[[], None] | None = None

    def append(self, item: T) -> None:
        super().append(item)
        if self.on_append is not None:
            self.on_append()


class CommandQueue(AgentQueue["Callable[[], None]"]):
    """The commands to the sender or to the receiver."""

    def run(self) -> int:
        """Run what is queued, in the agent's thread; return how many calls there were. One that raises is not run again."""
        done = 0
        while self and done < COMMANDS_PER_CYCLE:
            done += 1
            self.popleft()()
        if self and self.on_append is not None:
            self.on_append()
        return done
