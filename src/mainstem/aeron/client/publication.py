"""Publications. Compiled appenders do the work for each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.log.append import BufferClaim, ConcurrentAppender, ExclusiveAppender
from mainstem._internal.clock import NOT_A_TIME, Deadline
from mainstem.aeron.client.arrow import arrow_buffers
from mainstem.aeron.client.offer_status import OfferStatus, offer_error
from mainstem.aeron.client.resource import Destinations, Resource
from mainstem.aeron.client.stats import PublicationStats
from mainstem.aeron.client.waiting import Wait, Waiting, run
from mainstem.aeron.counters import CounterType
from mainstem.aeron.group import group_size, incomplete_group
from mainstem.errors import ConfigurationError, NotConnected

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from mainstem._core.memory.buffer import AtomicBuffer
    from mainstem.aeron.client.operation import Conductor
    from mainstem.aeron.client.waiting import Steps
    from mainstem.aeron.command.responses import OnPublicationReady
    from mainstem.errors import MainstemError

__all__ = ["BufferClaim", "ExclusivePublication", "Publication"]


class PublicationBase(Resource):
    """The part of a publication that neither appends nor blocks."""

    def __init__(self, conductor: Conductor, ready: OnPublicationReady, channel: str, log: AtomicBuffer) -> None:
        super().__init__(log, conductor.counters.values, ready.position_limit_id)  # type: ignore[call-arg]
        self._open(conductor, ready.correlation_id)
        self.channel = channel
        self.original_registration_id = ready.original_registration_id
        self.channel_status_id = ready.channel_status_id
        self._log: AtomicBuffer | None = log

    def stats(self: Any) -> PublicationStats:
        """Return the publication's position and the number of bytes that can be published before back pressure."""
        return PublicationStats(
            self.channel,
            self.stream_id,
            self.session_id,
            isinstance(self, ExclusiveAppender),
            self.is_connected,
            self.position,
            self.available_window,
        )

    def offer_arrow(
        self: Any, column: pa.Array[Any] | pa.ChunkedArray[Any], *, first: int = 0, count: int = -1
    ) -> tuple[int, int]:
        """Offer the rows of a pyarrow binary or string column as messages, like ``offer_many``, without copying the column.

        Args:
            column: The messages, one per row.
            first: The first row.
            count: The number of rows; -1 for all rows from ``first`` on.

        Returns:
            The number of rows that were accepted and the position after them, or a negative status if none were.

        Raises:
            ConfigurationError: The column has nulls, or the rows are outside it.
            TypeError: The column has an unsupported type.

        Example:
            >>> rows, position = publication.offer_arrow(table["payload"])
        """
        rows, position = 0, 0
        for buffers, begin, length, wide in arrow_buffers(column, first, count):
            data, offsets = buffers
            accepted, end = self.offer_columns(data, offsets, first=begin, count=length, wide=wide)
            if accepted:
                rows, position = rows + accepted, end
            elif not rows:
                position = end
            if accepted < length:
                break
        return rows, position

    def _sending(
        self: Any,
        position: int,
        message: Any,
        timeout: float | None,
        reserved_value: int | Callable[[memoryview], int] | None,
    ) -> Steps[int]:
        """Offer a message until there is space. ``position`` is the negative result of the first offer."""
        deadline = Deadline(self._conductor.context.clock, timeout)
        while position < 0:
            status = OfferStatus(position)
            if status.is_final:
                raise offer_error_of(self, status, f"send on {self!r}")
            if (left := deadline.left) == 0:
                raise offer_error_of(self, status, f"send on {self!r}", f", for {timeout:g} s")
            yield Wait(left)
            position = self.offer(message, reserved_value=reserved_value)
        return position

    def revoke(self) -> None:
        """Close the publication and end the stream for its subscribers at once. Messages that they have not read are dropped."""
        self._conductor.close_resource(self, revoke=True)

    def _release(self: Any) -> None:
        self._closed = True
        self._detach()
        log, self._log = self._log, None
        self._conductor.logs.unmap(log)


def offer_error_of(publication: Any, status: int, subject: str, waited: str = "") -> MainstemError:
    """Return the error for the status of a failed offer, with as much explanation as the client has.

    If the receiver group is incomplete, `NotConnected` says so. If the client's failure closed the publication, return that
    failure.
    """
    conductor = publication._conductor
    if status == OfferStatus.CLOSED and conductor.failure is not None:
        failure: MainstemError = conductor.failure
        return failure
    if status != OfferStatus.NOT_CONNECTED or publication.closed:
        return offer_error(status, subject, waited)
    counter_id = conductor.counters.find(CounterType.FLOW_CONTROL_RECEIVERS, publication.original_registration_id)
    receivers = conductor.counters.value(counter_id) if counter_id >= 0 else None
    size = group_size(publication.channel)
    if receivers is None or not (receivers or size):
        return NotConnected(f"{subject}: no subscriber is connected{waited}", receivers=receivers, group_size=size)
    reason = incomplete_group(receivers, size)
    return NotConnected(f"{subject}: {reason}{waited}", receivers=receivers, group_size=size)


class Sending(PublicationBase, Destinations):
    """The waiting calls of a blocking publication."""

    def send(
        self: Any,
        message: Any,
        timeout: float | None = None,
        *,
        reserved_value: int | Callable[[memoryview], int] | None = None,
    ) -> int:
        if timeout is not None and timeout != timeout:
            raise ConfigurationError(NOT_A_TIME)
        position: int = self.offer(message, reserved_value=reserved_value)
        if position < 0:
            steps = self._sending(position, message, timeout, reserved_value)
            position = run(steps, Waiting(self._conductor.invokers))
        return position

    def close(self) -> None:
        """Close the publication. Messages that were sent are still delivered; use ``revoke`` to drop them. Idempotent."""
        self._end()


class Publication(Sending, ConcurrentAppender):
    """A concurrent publication. Any number of threads and processes can publish to the same stream.

    ``offer``, ``offer_parts``, ``offer_many``, ``offer_arrow``, ``try_claim`` and ``append_padding`` never wait. They return a
    position, or a negative OfferStatus. ``send`` waits.

    Attributes:
        channel: The channel that the publication was added with.
        stream_id: The stream id.
        session_id: The session id.
        registration_id: The correlation id of the command that added the publication.
        original_registration_id: The correlation id of the command that created the stream.
        max_message_length: The length of the longest possible message, in bytes.
        max_payload_length: The length of the longest message that fits in one frame, in bytes.

    Example:
        >>> with aeron.add_publication("aeron:ipc", 1001) as publication:
        ...     publication.send(b"tick")
    """


class ExclusivePublication(Sending, ExclusiveAppender):
    """A publication with one writer and its own stream. It is slightly faster. Use it from one thread at a time.

    It has everything that ``Publication`` has, plus ``offer_block``.

    Example:
        >>> with aeron.add_exclusive_publication("aeron:ipc", 1001) as publication:
        ...     publication.send(b"tick")
    """
