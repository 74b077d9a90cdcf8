"""What the blocking ends of a duologue do alike: send and receive."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from mainstem.duologue.ends import End
from mainstem.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from mainstem.duologue.ends import Steps

T = TypeVar("T")


class Talk(End):
    """Sends and receives, in the thread of the caller."""

    @abstractmethod
    def _run(self, steps: Steps[T]) -> T:
        """Run a procedure to its end; waits between its steps."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    def send(self, message: bytes | str, timeout: float | None = None) -> None:
        """Send a message; returns once the stream has accepted it. A call that fails has sent nothing.

        Args:
            message: At most ``max_message_length`` bytes; text is encoded as UTF-8.
            timeout: Seconds to wait for room, at most; None waits forever.

        Raises:
            Timeout: The peer made no room in time.
            ConnectRefused: The server ended the duologue with a reason.
            ConnectionLost: Nothing was heard from the peer for ``heartbeat_timeout``.
            Aborted: The peer aborted the duologue.
            ClosedError: The peer has left, or this end is closed.
            ValueError: The message is too long.
            TypeError: The message is neither text nor a bytes-like object.

        Example:
            >>> duologue.send("ECHO tide")
        """
        self._run(self._sending(message, timeout))

    def receive(self, timeout: float | None = None) -> bytes:
        """Receive the next message.

        Args:
            timeout: Seconds to wait at most; None waits forever.

        Returns:
            The message, decrypted where the duologue is encrypted.

        Raises:
            Timeout: No message came in time. None is lost: the next call receives it. At a server also: the client sent
                nothing for ``idle_timeout``, which ended the duologue.
            ConnectRefused: The server ended the duologue with a reason.
            ConnectionLost: Nothing was heard from the peer for ``heartbeat_timeout``.
            Aborted: The peer aborted the duologue.
            ClosedError: The peer has left, or this end is closed. What came before was received.

        Example:
            >>> message = duologue.receive(timeout=5)
        """
        return self._run(self._receiving(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over messages until the peer leaves. Raises what `receive` raises for any other end."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                return
