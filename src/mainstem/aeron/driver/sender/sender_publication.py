"""The Python part of a publication in the sender: SETUPs, receivers, flow control (docs/protocols/aeron.md, 14 to 17).

Theory of operation
-------------------
The compiled ``SendPath`` does the work of each duty cycle: it sends data and heartbeats, moves the sender's limit according to the
status messages of known receivers, retransmits, cleans the log, and moves the publishers' limit. This class handles rare events:

- A SETUP is due every 100 ms until the first receiver reports, and again when a receiver requests one. The path reports when one
  is due, and ``on_setup_due`` sends it with the flags for a group and for a response channel.
- ``on_receiver`` handles status messages of receivers that are unknown or don't count yet. Flow control decides whether a receiver
  counts toward the limit. From then on, the path tracks the receiver.
- ``on_receiver_gone`` and ``on_error`` remove a receiver that is silent, leaves or refuses the stream.
- ``next_python_ns`` is when ``on_time`` is due: the earlier of the deadlines of flow control and of the time announcements.

``_changed`` runs after every change to the set of receivers. It lets flow control set the path's switches, and updates the counter
of receivers and the deadline. Only the path writes the sender's limit.

The conductor creates the object and hands it over with ``add_publication``. Until ``PublicationReleased`` gives it back, the
conductor only sends it messages. Status messages, NAKs and errors can be lost, repeated, reordered or forged, so the path first
checks them against the stream. Replies to measurements are limited per receiver.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.driver.datagram import Address
from mainstem._core.driver.retransmit import RetransmitHandler
from mainstem._internal.clock import NEVER_NS
from mainstem.aeron.channel_values import written_offset
from mainstem.aeron.driver.sender.flow_control import FlowControlDefaults, choose_flow_control
from mainstem.aeron.logbuffer import wrap_i32
from mainstem.aeron.protocol.frames import Rttm

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.driver.send_path import SendPath
    from mainstem.aeron.driver.event_log.stream import StreamEvents
    from mainstem.aeron.driver.media.endpoints import SendChannelEndpoint
    from mainstem.aeron.driver.one_way import MeasurementBurst
    from mainstem.aeron.driver.sender.flow_control import FlowControl
    from mainstem.aeron.protocol import frames

# Minimum time between two replies to one receiver, so that forged requests cannot turn the sender into an amplifier. CUBIC measures
# at most once every 400 µs.
MEASURE_SPACING_NS = 100_000
# Number of receivers whose requests are limited separately.
MAX_MEASURERS = 256

_keys = itertools.count(1)


class SenderPublication:
    """The Python part of one publication. The conductor creates it, and only the sender's thread uses it.

    ``flow_control`` and ``retransmit`` default to those of the endpoint's channel. ``response_correlation_id`` is -1 for none.
    ``is_response`` marks the responding side, which sends to the receiver that requested a SETUP. If ``measurements`` is given, the
    publication announces its time to receivers.
    """

    def __init__(
        self,
        path: SendPath,
        endpoint: SendChannelEndpoint,
        *,
        registration_id: int = -1,
        flow_control: FlowControl | None = None,
        retransmit: RetransmitHandler | None = None,
        response_correlation_id: int = -1,
        is_response: bool = False,
        on_group_size: Callable[[int], None] | None = None,
        measurements: MeasurementBurst | None = None,
        events: StreamEvents | None = None,
    ) -> None:
        channel = endpoint.channel
        group = channel.has_group_semantics
        self.path = path
        self.endpoint = endpoint
        self.registration_id = registration_id
        self.is_response = is_response or channel.is_response
        self.flow_control = flow_control or choose_flow_control(
            channel.uri.flow_control if group else None, group=group, defaults=FlowControlDefaults()
        )
        path.set_retransmit(
            retransmit
            or RetransmitHandler(
                path.term_length,
                group=group,
                max_actions=channel.uri.max_resend,
                window_multiple=self.flow_control.window_multiple,
            )
        )
        self.setup_flags = layout.SETUP_FLAG_GROUP if group else 0
        if response_correlation_id != -1 and not self.is_response:
            self.setup_flags |= layout.SETUP_FLAG_SEND_RESPONSE
        self._is_unicast = not group
        self._replied_ns: dict[int, int] = {}
        self._on_group_size = on_group_size
        self._measurements = measurements
        self._events = events
        if events is not None:
            events.watch_resends()
        path.key = next(_keys)
        stamp = written_offset(channel.uri.channel_send_timestamp_offset)
        if stamp is not None:
            path.timestamp_offset = stamp
        self.flow_control.prepare(path)
        if self.is_response:
            # There is no address to send to until a receiver requests a SETUP.
            path.setup_due_ns = NEVER_NS

    @property
    def _has_sent_everything(self) -> bool:
        """Whether the stream has ended and was sent to its end, whether the end has been announced or not."""
        path = self.path
        return path.end_of_stream or (path.draining and path.sender_position >= path.producer_position())

    def on_setup_due(self, now_ns: int) -> None:
        if self._has_sent_everything:
            # Whoever joined now would receive nothing.
            self.path.setup_due_ns = NEVER_NS
            self.path.setup_elicited = False
            self._set_deadline()
            return
        self.path.send_setup(self.setup_flags, self.endpoint.ttl)
        self.flow_control.on_setup_sent(self.path, now_ns)
        if self.path.has_receivers:
            self.path.setup_elicited = False
        self._set_deadline()

    def on_elicited(self, status: frames.StatusMessage, source: bytes, now_ns: int) -> None:
        """Handle a receiver's request for a SETUP. A response publication sends to the source of the request."""
        if self._has_sent_everything:
            return
        if self.is_response and (self.path.destination is None or bytes(self.path.destination) != source):
            self.path.set_destination(Address(source))
            self.path.setup_due_ns = now_ns
        self.flow_control.on_elicited(self.path, status, now_ns)
        self.path.setup_elicited = True
        self._set_deadline()

    def on_receiver(self, status: frames.StatusMessage, now_ns: int) -> bool:
        """Handle the report of a receiver that is unknown or doesn't count yet; return whether it is the first receiver."""
        path = self.path
        terms = wrap_i32(status.consumption_term_id - path.initial_term_id)
        edge = terms * path.term_length + status.consumption_term_offset + status.receiver_window
        first = not path.has_receivers
        counts = self.flow_control.on_receiver(path, status, edge, now_ns)
        path.add_receiver(status.receiver_id, edge, now_ns, counts)
        self._changed(now_ns)
        if self._measurements is not None:
            self._measurements.begin(now_ns)
            self._set_deadline()
        if first:
            # The publication has just connected. A heartbeat tells a waiting receiver the position of the stream at once.
            path.heartbeat_now()
        return first

    def on_receiver_gone(self, receiver_id: int, now_ns: int, *, left: bool) -> None:
        self.path.remove_receiver(receiver_id)
        if left and self._is_unicast:
            self.path.received_unicast_eos = True
        self._changed(now_ns)

    def on_measurement(self, measure: Rttm, source: bytes, now_ns: int) -> None:
        if not measure.is_request or now_ns - self._replied_ns.get(measure.receiver_id, -NEVER_NS) < MEASURE_SPACING_NS:
            return
        if len(self._replied_ns) >= MAX_MEASURERS:
            self._replied_ns.clear()
        self._replied_ns[measure.receiver_id] = now_ns
        reply = measure.reply().encode()
        # On a multicast channel, reply to the address of the data: no receiver listens at the source address of its requests.
        self.endpoint.core.send_frame(reply, None if self.endpoint.channel.is_multicast else self._only(source))

    def _only(self, source: bytes) -> Address | None:
        return None if self.endpoint.is_connected else Address(source)

    def on_error(self, error: frames.ErrorFrame, now_ns: int) -> bool:
        known = self.path.remove_receiver(error.receiver_id)
        self._changed(now_ns)
        return known

    def on_time(self, now_ns: int) -> None:
        if now_ns >= self.flow_control.deadline_ns:
            self.flow_control.on_time(self.path, now_ns)
            self._publish_group()
        self._measure(now_ns)
        self._set_deadline()

    def _measure(self, now_ns: int) -> None:
        due = self._measurements
        if due is None or now_ns < due.due_ns or not self.path.has_receivers:
            return
        due.sent(now_ns)
        path = self.path
        measure = Rttm(
            session_id=path.session_id, stream_id=path.stream_id, echo_timestamp=due.epoch_ns(), receiver_id=0
        )
        self.endpoint.core.send_frame(measure.encode(), path.destination)

    def _changed(self, now_ns: int) -> None:
        self.flow_control.on_change(self.path, now_ns)
        self._publish_group()
        self._set_deadline()

    def _publish_group(self) -> None:
        if self._on_group_size is not None:
            self._on_group_size(self.flow_control.group_size(self.path))
        if self._events is not None and self.flow_control.tracks_minimum:
            self._events.receivers(row[0] for row in self.path.receivers() if row[3])

    def _set_deadline(self) -> None:
        deadline_ns = self.flow_control.deadline_ns
        if self._measurements is not None and self.path.has_receivers:
            deadline_ns = min(deadline_ns, self._measurements.due_ns)
        self.path.next_python_ns = deadline_ns
