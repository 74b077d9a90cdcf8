"""The queue into an agent's thread. Agents call each other only through it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Limit on the commands that one duty cycle runs, so that a burst of commands doesn't stall the streams.
COMMANDS_PER_CYCLE = 64


class AgentQueue(deque[T]):
    """A queue that any thread appends to and one agent takes from.

    Deque operations are atomic, so the queue needs no lock. After each append, it calls ``on_append``, if set, to wake the loop of
    the agent.
    """

    on_append: Callable[[], None] | None = None

    def append(self, item: T) -> None:
        super().append(item)
        if self.on_append is not None:
            self.on_append()


class CommandQueue(AgentQueue["Callable[[], None]"]):
    def run(self) -> int:
        """Run queued calls in the agent's thread and return how many. A call that raises isn't repeated."""
        done = 0
        while self and done < COMMANDS_PER_CYCLE:
            done += 1
            self.popleft()()
        if self and self.on_append is not None:
            self.on_append()
        return done
