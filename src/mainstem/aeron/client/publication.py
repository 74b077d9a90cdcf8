"""Publications: where messages go in. The calls a message are the compiled appender's own; here are the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.log.append import BufferClaim, ConcurrentAppender, ExclusiveAppender
from mainstem.aeron.client.arrow import arrow_buffers
from mainstem.aeron.client.offer_status import OfferStatus, offer_error
from mainstem.aeron.client.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.conductor import ClientConductor
    from mainstem.aeron.command.responses import OnPublicationReady

__all__ = ["BufferClaim", "ExclusivePublication", "Publication"]


class PublicationFace(Resource):
    """What both kinds of publication can do besides appending."""

    original_registration_id: int
    _log: AtomicBuffer | None

    def _become(self, conductor: ClientConductor, ready: OnPublicationReady, channel: str, log: AtomicBuffer) -> None:
        self._open(conductor, ready.correlation_id)
        self.channel = channel
        self.original_registration_id = ready.original_registration_id
        self.channel_status_id = ready.channel_status_id
        self._log = log

    def send(
        self: Any,
        data: Any,
        *,
        timeout: float | None = None,
        reserved_value: int | Callable[[memoryview], int] | None = None,
    ) -> int:
        """Offers until there is room, and returns the position. ``timeout`` is in seconds; None waits for ever.

        Raises BackPressured, NotConnected or AdminAction when the time is over, ClosedError and MaxPositionExceeded at
        once (DriverTimeout or ClientTimeout when that is why it is closed), ValueError for a message that is too long.
        """
        position: int = self.offer(data, reserved_value=reserved_value)
        if position > 0:
            return position
        waiting = self._conductor.waiting(timeout)
        while position < 0:
            status = OfferStatus(position)
            if status.is_final:
                if status is OfferStatus.CLOSED:
                    self._conductor.raise_failure()
                raise offer_error(status, f"send on {self!r}")
            if not waiting.step():
                raise offer_error(status, f"send on {self!r}", f", for {timeout:g} s")
            position = self.offer(data, reserved_value=reserved_value)
        return position

    def offer_arrow(
        self: Any, column: pa.Array[Any] | pa.ChunkedArray[Any], *, first: int = 0, count: int = -1
    ) -> tuple[int, int]:
        """As ``offer_many``, with the rows of a binary or string column of pyarrow, read where they lie.

        ``first`` and ``count`` choose rows. Raises ValueError for a column with nulls, TypeError for another type.
        """
        taken, position = 0, 0
        for buffers, begin, length, wide in arrow_buffers(column, first, count):
            data, offsets = buffers
            done, answer = self.offer_columns(data, offsets, first=begin, count=length, wide=wide)
            if done:
                taken, position = taken + done, answer
            elif not taken:
                position = answer
            if done < length:
                break
        return taken, position

    def add_destination(self, channel: str, *, timeout: float | None = None) -> int:
        """Adds a destination (the channel must say ``control-mode=manual``); its id, for ``remove_destination``."""
        return self._conductor.add_destination(self, channel).wait(timeout)

    def async_add_destination(self, channel: str) -> AsyncOperation[int]:
        """The same without waiting."""
        return self._conductor.add_destination(self, channel)

    def remove_destination(self, destination: str | int, *, timeout: float | None = None) -> None:
        """Removes a destination, by its channel or by the id that ``add_destination`` gave."""
        self._conductor.remove_destination(self, destination).wait(timeout)

    def revoke(self) -> None:
        """Closes, and takes the stream away from its subscribers at once, without draining it."""
        self._conductor.close_resource(self, revoke=True)

    def _detach(self: Any) -> None:
        self._closed = True
        self.detach()
        log, self._log = self._log, None
        self._conductor.unmap(log)

    def __del__(self) -> None:
        self._warn_if_open()


class Publication(PublicationFace, ConcurrentAppender):
    """A concurrent publication: any number of threads and processes may publish to the same stream.

    ``offer``, ``offer_parts``, ``offer_many``, ``offer_arrow``, ``try_claim`` and ``append_padding`` never wait and answer a
    position, or a negative OfferStatus; ``send`` waits.
    """


class ExclusivePublication(PublicationFace, ExclusiveAppender):
    """A publication with one writer and a stream of its own; a little faster. Use it from one thread at a time."""
