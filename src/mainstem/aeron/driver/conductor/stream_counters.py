"""The counters of streams, allocated and freed together (docs/protocols/aeron.md, 8.3, 8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._internal.frozen import frozen
from mainstem.aeron.counters import CounterType, publisher_position, stream_counter

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.counters import CounterSpec
    from mainstem.aeron.driver.counters import DriverCounters

NO_OWNER = -1
OWNERLESS = (CounterType.FLOW_CONTROL_RECEIVERS, CounterType.PER_IMAGE)


class StreamCounters:
    """The counters of one stream.

    ``registration_id`` is that of the publication or the image. ``client_id`` is the owner of the counters: the client that added
    the publication or the image's oldest subscription. Counters of flow control and those of type PER_IMAGE have no owner.
    """

    def __init__(
        self,
        counters: DriverCounters,
        registration_id: int,
        *,
        client_id: int,
        session_id: int,
        stream_id: int,
        channel: str,
    ) -> None:
        self._counters = counters
        self.registration_id = registration_id
        self.client_id = client_id
        self.session_id = session_id
        self.stream_id = stream_id
        self.channel = channel
        self._cells: list[CounterCell] = []

    def allocate(self, type_id: CounterType, *, name: str = "", value: int = 0) -> CounterCell:
        """Allocate a counter of the stream; only PER_IMAGE counters need ``name``."""
        return self._allocate(
            stream_counter(
                type_id,
                self.registration_id,
                session_id=self.session_id,
                stream_id=self.stream_id,
                channel=self.channel,
                name=name,
            ),
            value,
        )

    def allocate_publisher_position(self, *, is_exclusive: bool, value: int) -> CounterCell:
        return self._allocate(
            publisher_position(
                self.registration_id,
                session_id=self.session_id,
                stream_id=self.stream_id,
                channel=self.channel,
                exclusive=is_exclusive,
            ),
            value,
        )

    def _allocate(self, spec: CounterSpec, value: int) -> CounterCell:
        owner_id = NO_OWNER if spec.type_id in OWNERLESS else self.client_id
        cell = self._counters.allocate(spec, registration_id=self.registration_id, owner_id=owner_id, value=value)
        self._cells.append(cell)
        return cell

    def close(self) -> None:
        while self._cells:
            self._counters.free(self._cells.pop())


@frozen
class SendCounters:
    publisher_position: CounterCell
    publisher_limit: CounterCell
    sender_position: CounterCell
    sender_limit: CounterCell
    back_pressure: CounterCell
    naks_received: CounterCell

    @classmethod
    def allocate(cls, stream: StreamCounters, *, start: int, is_exclusive: bool) -> SendCounters:
        return cls(
            publisher_position=stream.allocate_publisher_position(is_exclusive=is_exclusive, value=start),
            publisher_limit=stream.allocate(CounterType.PUBLISHER_LIMIT, value=start),
            sender_position=stream.allocate(CounterType.SENDER_POSITION, value=start),
            sender_limit=stream.allocate(CounterType.SENDER_LIMIT, value=start),
            back_pressure=stream.allocate(CounterType.SENDER_BACK_PRESSURE_EVENTS),
            naks_received=stream.allocate(CounterType.SENDER_NAKS_RECEIVED),
        )


@frozen
class ReceiveCounters:
    high_water_mark: CounterCell
    position: CounterCell
    naks_sent: CounterCell

    @classmethod
    def allocate(cls, stream: StreamCounters, *, start: int) -> ReceiveCounters:
        return cls(
            high_water_mark=stream.allocate(CounterType.RECEIVER_HIGH_WATER_MARK, value=start),
            position=stream.allocate(CounterType.RECEIVER_POSITION, value=start),
            naks_sent=stream.allocate(CounterType.RECEIVER_NAKS_SENT),
        )
