"""Commands that the driver has not responded to yet, and how callers wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from mainstem._core.memory.counters import CountersReader
    from mainstem.aeron.client.context import ClientContext
    from mainstem.aeron.client.logs import Logs
    from mainstem.aeron.client.waiting import Steps
    from mainstem.aeron.cnc import CncFile
    from mainstem.aeron.command.commands import Command
    from mainstem.aeron.command.responses import Response
    from mainstem.errors import MainstemError

T = TypeVar("T")


class Conductor(Protocol):
    """The part of the client's conductor that operations and resources use. It is `ClientConductor`, which creates them."""

    context: ClientContext
    cnc: CncFile
    counters: CountersReader
    logs: Logs
    closed: bool
    cycles: int
    failure: MainstemError | None
    invokers: tuple[Callable[[], int], ...]
    dropped: deque[PendingCommand[Any]]

    def raise_failure(self) -> None: ...

    def request_cycle(self) -> int: ...

    def guard(self, handler: Callable[..., object], *arguments: object) -> None: ...

    def await_operation(self, pending: PendingCommand[Any], timeout: float | None) -> None: ...

    def awaiting(self, pending: PendingCommand[Any], timeout: float | None) -> Steps[None]: ...

    def cancel_operation(self, pending: PendingCommand[Any]) -> None: ...

    def close_resource(self, resource: Any, *, revoke: bool = False) -> None: ...

    def leave_open(self, resource: Any) -> None: ...

    def add_destination(self, resource: Any, channel: str) -> Operation[int]: ...

    def remove_destination(self, resource: Any, destination: str | int) -> Operation[None]: ...

    def reject_image(self, image: Any, reason: str) -> Operation[None]: ...


class PendingCommand(Generic[T]):
    """A pending command and later its outcome. ``is_taken`` is set once a caller has the result."""

    def __init__(self, command: Command, *, what: str, deadline_ns: int, complete: Callable[[Response], T]) -> None:
        self.command = command
        self.what = what
        self.deadline_ns = deadline_ns
        self.is_done = False
        self.is_taken = False
        self.result: T | None = None
        self.error: BaseException | None = None
        self._complete = complete

    def succeed(self, response: Response) -> None:
        """Build the result. If building it raises, that error becomes the command's error."""
        try:
            self.result = self._complete(response)
        except Exception as error:
            self.error = error
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self.is_done = True

    def take(self) -> T | None:
        """Return the result or raise the error. Return None if there is neither."""
        if self.error is not None:
            raise self.error.with_traceback(None)
        self.is_taken = self.is_done
        return self.result


class Operation(Generic[T]):
    """A pending command. ``poll`` returns its result, or None until there is one; ``wait`` waits for it.

    Keep the operation until you have the result. If it is garbage-collected, times out or is cancelled before that, the client
    removes whatever the driver creates for it, except a destination that the driver has already added. The methods that return
    the result raise RegistrationError if the driver refused the command, and DriverTimeout if it did not respond in time.

    Attributes:
        correlation_id: The command's correlation id.

    Example:
        >>> operation = aeron.async_add_publication("aeron:ipc", 1001)
        >>> publication = operation.wait(timeout=1.0)
    """

    def __init__(self, conductor: Conductor, pending: PendingCommand[T]) -> None:
        self.correlation_id = pending.command.correlation_id
        self._conductor = conductor
        self._pending = pending

    @property
    def is_done(self) -> bool:
        """Whether there is a result or an error."""
        return self._pending.is_done

    @property
    def error(self) -> BaseException | None:
        """The error, if the command failed; else None."""
        return self._pending.error

    def __repr__(self) -> str:
        state = "pending" if not self.is_done else "done" if self.error is None else "failed"
        return f"<Operation for {self._pending.what}, {state}>"

    def poll(self) -> T | None:
        """Return the result if there is one, without waiting. Return None if the driver has not responded."""
        return self._pending.take()

    def wait(self, timeout: float | None = None) -> T:
        """Wait for the result.

        Args:
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The result.

        Raises:
            LocalProtocolError: The caller is a handler, and waiting there would keep the response from arriving.
        """
        self._conductor.await_operation(self._pending, timeout)
        return self.result()

    def cancel(self) -> None:
        """Cancel the command. The client removes whatever the driver creates for it. Does nothing once you have the result."""
        self._conductor.cancel_operation(self._pending)

    def result(self) -> T:
        """Return the result of an operation that is done."""
        return self._pending.take()  # type: ignore[return-value]

    def __del__(self) -> None:
        # This runs in whatever thread collects the object, with any locks that thread holds. So only queue it for the conductor.
        if not self._pending.is_taken and self._pending.error is None:
            self._conductor.dropped.append(self._pending)


def awaiting(operation: Operation[T], timeout: float | None) -> Steps[T]:
    """Wait for the result. Cancel the command if the wait ends early."""
    try:
        yield from operation._conductor.awaiting(operation._pending, timeout)
        return operation.result()
    except BaseException:
        operation.cancel()
        raise


def wait_or_cancel(operation: Operation[T], timeout: float | None) -> T:
    """Wait for the result in the caller's thread. Cancel the command if the wait ends early."""
    try:
        return operation.wait(timeout)
    except BaseException:
        operation.cancel()
        raise
