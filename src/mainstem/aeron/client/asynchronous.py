"""A command that the driver has not responded to yet, and how a caller waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mainstem.clock import NS_PER_MS, seconds_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.log.read import SubscriptionReader
    from mainstem.aeron.command.responses import Response
    from mainstem.aeron.idle import IdleStrategy
    from mainstem.clock import Clock

T = TypeVar("T")

LONGEST_WAIT_NS = 10 * NS_PER_MS  # ``wait_for_data`` returns this often anyway


class OperationRunner(Protocol):
    """The part of the conductor that a pending operation calls."""

    def await_operation(self, operation: AsyncOperation[Any], timeout: float | None) -> None:
        """Waits until the operation is done."""
        ...


class AsyncOperation(Generic[T]):
    """A pending command: ``poll`` returns its result once there is one, ``wait`` waits for it.

    Attributes:
        correlation_id: The command's correlation id.
        is_done: Whether there is a result or an error.

    Example:
        >>> operation = aeron.async_add_publication("aeron:ipc", 1001)
        >>> publication = operation.wait(timeout=1.0)
    """

    def __init__(
        self,
        conductor: OperationRunner,
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
        """Completes the operation, for the conductor; an error while the result is made is the operation's own."""
        try:
            self._result = self._complete(response)
        except Exception as error:
            self._error = error
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        """Fails the operation, for the conductor."""
        if not self.is_done:
            self._error = error
            self.is_done = True

    @property
    def error(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._error

    def poll(self) -> T | None:
        """Returns the result once there is one; runs nothing and never waits.

        Returns:
            The result, or None while the driver has not responded.

        Raises:
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.

        Example:
            >>> while (publication := operation.poll()) is None:
            ...     work()
        """
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, timeout: float | None = None) -> T:
        """Waits for the result, never longer than the driver timeout.

        Args:
            timeout: Seconds to wait; None for the driver timeout.

        Returns:
            The result.

        Raises:
            RegistrationError: The driver refused.
            DriverTimeout: The driver did not respond in time.
            LocalProtocolError: Called from a handler, which the response could never reach.

        Example:
            >>> publication = operation.wait()
        """
        self._conductor.await_operation(self, timeout)
        return self.result()

    def result(self) -> T:
        """Returns the result of an operation that is done."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Waiting:
    """Idles between two checks for something that is not there yet, until a time limit."""

    def __init__(
        self, idle: IdleStrategy, clock: Clock, timeout: float | None, invokers: tuple[Callable[[], int], ...]
    ) -> None:
        self._idle = idle
        self._clock = clock
        self._timeout_ns = None if timeout is None else seconds_ns(timeout)
        self._invokers = invokers
        self.restart()

    def restart(self) -> None:
        """Begins anew after a success."""
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
            subscription.wait_for_data(LONGEST_WAIT_NS if left_ns is None else min(left_ns, LONGEST_WAIT_NS))
        else:
            self._idle.idle(0)
        return True
