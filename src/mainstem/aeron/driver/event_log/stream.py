"""The events of a publication in the sender: retransmissions, and changes to the receivers that flow control waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.event_log.events import Event
from mainstem.aeron.logbuffer.descriptor import wrap_i32

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.driver.send_path import SendPath
    from mainstem._internal.clock import Clock
    from mainstem.aeron.driver.event_log.log import EventLog


class StreamEvents:
    def __init__(self, log: EventLog, clock: Clock, path: SendPath, channel: str) -> None:
        self._log = log
        self._clock = clock
        self._path = path
        self._channel = channel
        self._receivers: set[int] = set()

    def watch_resends(self) -> None:
        if self._log.includes(Event.RESEND):
            self._path.on_resend = self._resent

    def receivers(self, ids: Iterable[int]) -> None:
        """Log changes to the receivers that flow control waits for."""
        now = set(ids)
        for receiver_id in sorted(now - self._receivers):
            self._receivers.add(receiver_id)
            self._changed(Event.FLOW_CONTROL_RECEIVER_ADDED, receiver_id)
        for receiver_id in sorted(self._receivers - now):
            self._receivers.discard(receiver_id)
            self._changed(Event.FLOW_CONTROL_RECEIVER_REMOVED, receiver_id)

    def _changed(self, event: Event, receiver_id: int) -> None:
        self._note(event, count=len(self._receivers), receiver_id=receiver_id)

    def _resent(self, position: int, length: int) -> None:
        path = self._path
        terms, offset = divmod(position, path.term_length)
        term_id = wrap_i32(path.initial_term_id + terms)
        self._note(Event.RESEND, term_id=term_id, term_offset=offset, length=length)

    def _note(self, event: Event, **fields: int) -> None:
        path = self._path
        stream = {"session_id": path.session_id, "stream_id": path.stream_id, "channel": self._channel}
        self._log.note(event, self._clock.monotonic_ns(), **stream, **fields)
