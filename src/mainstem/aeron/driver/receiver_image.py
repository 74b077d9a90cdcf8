"""What an image needs from its receiver besides the ordinary: gaps, windows, refusals (behaviour, 15.4, 16, 18, 20, 21)."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem.aeron.driver import frames
from mainstem.aeron.driver.congestion import StaticWindow
from mainstem.aeron.driver.delay import StaticDelay
from mainstem.aeron.driver.loss_detector import MAX_GAPS, LossDetector
from mainstem.aeron.driver.messages import LossObserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.receive_path import ReceivePath
    from mainstem.aeron.driver.congestion import CongestionControl
    from mainstem.aeron.driver.messages import ToConductor

NEVER_NS = 0x7FFFFFFFFFFFFFFF
# The error code of an image that its subscriber rejected (behaviour, 21).
IMAGE_REJECTED = 13
# A measurement is answered this long after the last one at the earliest: a forged request must not make a receiver shout.
MEASURE_SPACING_NS = 100_000

_keys = itertools.count(1)


class ReceiverImage:
    """One image in the receiver's hands. Made by the conductor, then used in the receiver's thread only.

    ``transport_index``, ``source`` and ``control_address`` are those of the ``CreateImage`` that it answers. ``reliable=False``
    fills gaps instead of asking for them.
    """

    def __init__(
        self,
        path: ReceivePath,
        *,
        receiver_id: int,
        source: bytes,
        control_address: bytes,
        transport_index: int = 0,
        loss_detector: LossDetector | None = None,
        congestion_control: CongestionControl | None = None,
        reliable: bool = True,
        group_tag: int | None = None,
        on_nak_sent: Callable[[], None] | None = None,
        on_gap_filled: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.receiver_id = receiver_id
        self.group_tag = group_tag
        self.source = source
        self.control_address = control_address
        self.transport_index = transport_index
        delay = StaticDelay.unicast() if reliable else StaticDelay(0, 0)
        self.loss_detector = loss_detector or LossDetector(delay)
        self.congestion_control: CongestionControl = congestion_control or StaticWindow(path.window_length)
        self._reliable = reliable
        self._on_nak_sent = on_nak_sent
        self._on_gap_filled = on_gap_filled
        self._rejection: str | None = None
        self._response_session_id: int | None = None
        self._seen_mark = path.high_water_mark
        self._measured_ns = -MEASURE_SPACING_NS
        path.key = next(_keys)
        self._set_deadline()

    def on_gap(self, now_ns: int) -> ToConductor | None:
        """The path noticed that something is missing."""
        if self.path.revoked or self._rejection is not None:
            return None
        lost = self.loss_detector.on_scan(self.path.gaps(MAX_GAPS), now_ns)
        if lost and self.congestion_control.on_loss(now_ns):
            self._take_window(force=True)
        self._report(now_ns)
        return LossObserved(image=self, bytes_lost=lost, now_ns=now_ns) if lost else None

    def on_time(self, now_ns: int) -> ToConductor | None:
        """Timers of gaps and of congestion control."""
        message = None
        if now_ns >= self.loss_detector.deadline_ns:
            message = self.on_gap(now_ns)
        if now_ns >= self.congestion_control.deadline_ns:
            mark = self.path.high_water_mark
            force = self.congestion_control.on_time(now_ns, progressed=mark > self._seen_mark)
            self._seen_mark = mark
            self._take_window(force=force)
            if self.congestion_control.measures_at(now_ns):
                request = frames.RoundTrip(
                    self.path.session_id, self.path.stream_id, now_ns, 0, self.receiver_id, is_request=True
                )
                self.path.send_frame(frames.round_trip_frame(request), now_ns)
        self._set_deadline()
        return message

    def _report(self, now_ns: int) -> None:
        """Asks for the gaps whose time has come, or fills them where the stream is unreliable."""
        for position, length in self.loss_detector.due(now_ns):
            if self._reliable:
                if self.path.send_nak(position, length, now_ns) and self._on_nak_sent is not None:
                    self._on_nak_sent()
            elif self.path.fill_gap(position, length) and self._on_gap_filled is not None:
                self._on_gap_filled()
        self._set_deadline()

    def on_measurement(self, measure: frames.RoundTrip, now_ns: int) -> None:
        """The sender measures the round trip, or answers a measurement of ours."""
        if measure.is_request:
            if measure.receiver_id in (0, self.receiver_id) and now_ns - self._measured_ns >= MEASURE_SPACING_NS:
                self._measured_ns = now_ns
                answer = measure._replace(reception_delta=0, is_request=False)
                self.path.send_frame(frames.round_trip_frame(answer), now_ns)
        elif measure.receiver_id == self.receiver_id:
            self.congestion_control.on_measurement(measure, now_ns)

    def on_status_due(self, now_ns: int) -> bool:
        """At the time of each status message: the refusal that stands in its place, or the answering session beside it.

        True when an ERR frame has left.
        """
        path = self.path
        if self._rejection is not None:
            return bool(
                path.send_frame(
                    frames.error_frame(
                        path.session_id,
                        path.stream_id,
                        receiver_id=self.receiver_id,
                        group_tag=self.group_tag,
                        code=IMAGE_REJECTED,
                        text=self._rejection,
                    ),
                    now_ns,
                )
            )
        if self._response_session_id is not None:
            path.send_frame(
                frames.response_setup_frame(path.session_id, path.stream_id, self._response_session_id), now_ns
            )
        return False

    def reject(self, reason: str) -> None:
        """Takes nothing in any more and says so instead of status messages."""
        self._rejection = reason.encode()[: layout.ERR_MAX_TEXT_LENGTH].decode(errors="ignore")
        self.path.rejected = True
        self.path.status_now()

    def set_response_session(self, session_id: int | None) -> None:
        """Tells the sender from now on which session answers it; None ends that."""
        self._response_session_id = session_id
        self.path.status_events = session_id is not None
        if session_id is not None:
            self.path.status_now()

    def _take_window(self, *, force: bool) -> None:
        self.path.window_length = self.congestion_control.window_length
        if force:
            self.path.force_status = True

    def _set_deadline(self) -> None:
        self.path.next_python_ns = min(self.loss_detector.deadline_ns, self.congestion_control.deadline_ns)
