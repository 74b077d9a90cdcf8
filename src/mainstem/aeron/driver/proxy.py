"""Commands from the conductor to an agent in another thread, or in the same one: queued, and run by its next duty cycle."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# A duty cycle runs this many commands at most, so that a burst of them does not stop the streams.
COMMANDS_IN_A_CYCLE = 64


class CommandQueue:
    """A queue of calls. ``on_command``, once set, is called after each is queued: the compiled loop's wake-up.

    Appending to and taking from a deque are atomic, which is all that two threads need here.
    """

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self.on_command: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, call: Callable[[], None]) -> None:
        """Queues a call. From any thread."""
        self._calls.append(call)
        if self.on_command is not None:
            self.on_command()

    def run(self) -> int:
        """Runs what is queued, in the agent's thread; how many calls there were. One that raises is not run again."""
        done = 0
        while self._calls and done < COMMANDS_IN_A_CYCLE:
            done += 1
            self._calls.popleft()()
        if self._calls and self.on_command is not None:
            self.on_command()
        return done


class AgentProxy:
    """An agent as other threads see it: every call is queued and run in the agent's next duty cycle.

    Set ``on_command`` to have the agent's loop woken.
    """

    def __init__(self, queue: CommandQueue) -> None:
        self._queue = queue

    @property
    def on_command(self) -> Callable[[], None] | None:
        return self._queue.on_command

    @on_command.setter
    def on_command(self, wake: Callable[[], None] | None) -> None:
        self._queue.on_command = wake
