"""A command that the driver has not answered yet, and how a caller waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.log.read import SubscriptionReader
    from mainstem.aeron.client.conductor import ClientConductor
    from mainstem.aeron.command.responses import Response
    from mainstem.aeron.idle import IdleStrategy
    from mainstem.clock import Clock

T = TypeVar("T")


class AsyncOperation(Generic[T]):
    """The answer to a command, when it has come. ``poll`` asks, ``wait`` waits."""

    def __init__(
        self,
        conductor: ClientConductor,
        correlation_id: int,
        *,
        what: str,
        deadline_ns: int,
        complete: Callable[[Response], T],
    ) -> None:
        self.correlation_id = correlation_id
        self.deadline_ns = deadline_ns
        self.what = what
        self.is_done = False
        self._conductor = conductor
        self._complete = complete
        self._result: T | None = None
        self._error: BaseException | None = None

    def succeed(self, response: Response) -> None:
        """For the conductor: the driver did it. An error while its answer is taken in is the operation's own."""
        try:
            self._result = self._complete(response)
        except Exception as error:
            self._error = error
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        """For the conductor: it will not be done."""
        if not self.is_done:
            self._error = error
            self.is_done = True

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._error

    def poll(self) -> T | None:
        """The result, or None while the driver has not answered. Runs nothing and never waits.

        Raises RegistrationError when the driver refused, DriverTimeout when it did not answer in time.
        """
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, timeout: float | None = None) -> T:
        """Waits for the result, at most ``timeout`` seconds and never longer than the driver timeout."""
        self._conductor.await_operation(self, timeout)
        return self.result()

    def result(self) -> T:
        """The result of an operation that is done."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Waiting:
    """Idling with an end: between two looks at something that is not there yet."""

    def __init__(
        self, idle: IdleStrategy, clock: Clock, timeout: float | None, invokers: tuple[Callable[[], int], ...]
    ) -> None:
        self._idle = idle
        self._clock = clock
        self._timeout_ns = None if timeout is None else round(timeout * 1e9)
        self._invokers = invokers
        self.restart()

    def restart(self) -> None:
        """Begins anew: what was waited for has come."""
        self._deadline_ns = None if self._timeout_ns is None else self._clock.monotonic_ns() + self._timeout_ns
        self._idle.reset()

    def step(self, subscription: SubscriptionReader | None = None) -> bool:
        """Idles once; false when the time is over. For a subscription's data it waits outside the interpreter's lock."""
        left_ns = None
        if self._deadline_ns is not None:
            left_ns = self._deadline_ns - self._clock.monotonic_ns()
            if left_ns <= 0:
                return False
        if self._invokers:
            self._idle.idle(sum(invoke() for invoke in self._invokers))
        elif subscription is not None:
            subscription.wait_for_data(10_000_000 if left_ns is None else left_ns)
        else:
            self._idle.idle(0)
        return True
