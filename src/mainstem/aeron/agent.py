"""Agents work in short duty cycles. An invoker runs them in the caller's thread, a runner in its own."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.log_throttle import LogThrottle, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from mainstem._internal.clock import Clock
    from mainstem.aeron.idle import IdleStrategy

_throttle = LogThrottle(logging.getLogger("mainstem.aeron"))


class Agent(Protocol):
    """A component that works in short duty cycles, which never block."""

    @property
    def role_name(self) -> str: ...

    def do_work(self, now_ns: int) -> int:
        """Run one duty cycle at the monotonic time ``now_ns``. Return the amount of work done; 0 means none."""
        ...

    def on_close(self) -> None:
        """Release resources. Called once, after the last duty cycle, in the same thread."""
        ...


class AgentTerminated(Exception):
    """An exception that ``do_work`` raises to end the agent."""


def log_error(error: BaseException) -> None:
    """Log the error. This is the default error handler; it logs repeated errors as one line with a count."""
    text = f"agent failed in a duty cycle: {type(error).__name__}: {error}"
    _throttle.log(logging.ERROR, kind_of(error), text, SYSTEM_CLOCK.monotonic_ns(), error=error)


class AgentInvoker:
    """Runs an agent in the caller's thread: one duty cycle for each ``invoke``, and none once it is closed.

    `AgentTerminated` closes the agent. All other errors go to the error handler.
    """

    def __init__(
        self, agent: Agent, *, clock: Clock = SYSTEM_CLOCK, error_handler: Callable[[BaseException], None] = log_error
    ) -> None:
        self.agent = agent
        self.is_closed = False
        self._clock = clock
        self._error_handler = error_handler

    def invoke(self) -> int:
        if self.is_closed:
            return 0
        try:
            return self.agent.do_work(self._clock.monotonic_ns())
        except AgentTerminated:
            self.close()
        except Exception as error:
            self._error_handler(error)
        return 0

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            try:
                self.agent.on_close()
            except Exception as error:
                self._error_handler(error)

    def __enter__(self) -> AgentInvoker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AgentRunner:
    """Runs an agent in its own thread, once, until the runner is closed or the agent terminates.

    After each duty cycle, the idle strategy decides how to wait. If a cycle raises, the error goes to the error handler and the
    agent continues. If the handler raises, the agent ends. The thread is a daemon, so a program that forgets to close can exit.
    """

    def __init__(
        self,
        agent: Agent,
        idle: IdleStrategy,
        *,
        clock: Clock = SYSTEM_CLOCK,
        error_handler: Callable[[BaseException], None] = log_error,
        on_start: Callable[[], None] | None = None,
    ) -> None:
        self.agent = agent
        self._idle = idle
        self._clock = clock
        self._error_handler = error_handler
        self._on_start = on_start
        self._running = False
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def start(self) -> AgentRunner:
        if self._thread is not None:
            raise RuntimeError(f"agent {self.agent.role_name} has been started already")
        self._running = True
        self._thread = threading.Thread(target=self._run, name=self.agent.role_name, daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        agent, idle, clock = self.agent, self._idle, self._clock
        try:
            if self._on_start is not None:
                self._on_start()
            while self._running:
                try:
                    work = agent.do_work(clock.monotonic_ns())
                except AgentTerminated:
                    break
                except Exception as error:
                    self._error_handler(error)
                    work = 0
                idle.idle(work)
        finally:
            self._close_agent()

    def _close_agent(self) -> None:
        try:
            self.agent.on_close()
        except Exception as error:
            self._error_handler(error)
        finally:
            self._closed.set()

    def stop(self) -> None:
        """Ask the thread to stop after its current duty cycle, without waiting for it."""
        self._running = False

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the agent to end; return whether it has."""
        return self._closed.wait(timeout)

    def close(self, timeout: float | None = 10.0) -> bool:
        """Stop the thread and wait for it. Return whether it has ended. Idempotent; the agent itself may also call this."""
        self._running = False
        thread = self._thread
        if thread is None:
            if not self._closed.is_set():
                self._close_agent()
            return True
        if thread is threading.current_thread():
            return False
        thread.join(timeout)
        return not thread.is_alive()

    def __enter__(self) -> AgentRunner:
        return self.start() if self._thread is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
