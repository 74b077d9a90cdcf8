"""The Python part of an image in the receiver: window, rejection, measurements (docs/protocols/aeron.md, 15.4, 18, 20, 21).

Theory of operation
-------------------
The compiled ``ReceivePath`` does the work of each datagram and duty cycle: it inserts data, moves rcv-hwm and rcv-pos, finds
gaps, and sends NAKs and status messages. This class handles rare events, and controls the path through its attributes:

- ``window_length`` is the window of the next status message; congestion control chooses it. ``force_status`` makes the path send
  one in the next cycle, because after a loss the sender must see the smaller window at once.
- ``rejected`` stops insertion, status messages and NAKs. Until the sender drops this receiver, the image sends an ERR frame
  whenever a status message would be due.
- ``status_events`` makes the path report each status message, so that the image can add an RSP_SETUP frame with the session of
  the response stream.
- ``next_python_ns`` is when ``on_time`` is due. Every method that may change a deadline sets it.

The conductor creates the object and hands it over with ``add_image``. Until ``ImageReleased`` gives it back, the conductor only
sends it messages. Frames can be lost, so the image repeats a rejection or a response session with each status message. Frames
can be duplicated, so repeats have no further effect.

Round-trip measurements (RTTM) go both ways. The image replies to a request with this receiver's id, or 0 for all receivers, at
most once per MEASURE_SPACING_NS. A reply with this receiver's id goes to congestion control. An unrequested reply with id 0
carries the sender's clock; the one-way latency is estimated from it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._core.driver.delay import StaticDelay
from mainstem._core.driver.loss_detector import LossDetector
from mainstem.aeron.driver.receiver.congestion_control import StaticWindowCongestionControl
from mainstem.aeron.protocol.frames import ErrorFrame, ResponseSetup, Rttm

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.driver.receive_path import ReceivePath
    from mainstem.aeron.driver.conductor_proxy import CreateImage
    from mainstem.aeron.driver.one_way import OneWayLatency
    from mainstem.aeron.driver.receiver.congestion_control import CongestionControl

# The error code of an image that its subscriber rejected (docs/protocols/aeron.md, 21).
IMAGE_REJECTED = 13
# Minimum time between two replies, so that forged requests cannot turn the receiver into an amplifier.
MEASURE_SPACING_NS = 100_000

_keys = itertools.count(1)


class ReceiverImage:
    """The Python part of one image. The conductor creates it, and only the receiver's thread uses it.

    ``message`` holds the fields of the SETUP. With ``reliable=False``, the path fills gaps instead of requesting retransmission.
    ``one_way`` estimates the one-way latency.
    """

    def __init__(
        self,
        path: ReceivePath,
        message: CreateImage,
        *,
        registration_id: int = -1,
        loss_detector: LossDetector | None = None,
        congestion_control: CongestionControl | None = None,
        reliable: bool = True,
        one_way: OneWayLatency | None = None,
        epoch_ns: Callable[[], int] | None = None,
    ) -> None:
        self.path = path
        self.registration_id = registration_id
        self.receiver_id = message.endpoint.receiver_id
        self.group_tag = message.endpoint.group_tag
        self.source = message.source
        self.transport_index = message.transport_index
        if loss_detector is None:
            loss_detector = LossDetector(StaticDelay.unicast() if reliable else StaticDelay(0, 0))
        path.set_loss_detector(loss_detector, reliable)
        self.congestion_control: CongestionControl = congestion_control or StaticWindowCongestionControl(
            path.window_length
        )
        self._take_window(force=False)
        path.reports_loss_at_once = not isinstance(self.congestion_control, StaticWindowCongestionControl)
        self.one_way = one_way
        self._epoch_ns = epoch_ns
        self._rejection: str | None = None
        self._response_session_id: int | None = None
        self._seen_mark = path.high_water_mark
        self._measured_ns = -MEASURE_SPACING_NS
        path.key = next(_keys)
        self._set_deadline()

    def on_loss(self, now_ns: int) -> None:
        if self.congestion_control.on_loss(now_ns):
            self._take_window(force=True)
        self._set_deadline()

    def on_time(self, now_ns: int) -> None:
        if now_ns >= self.congestion_control.deadline_ns:
            mark = self.path.high_water_mark
            force = self.congestion_control.on_time(now_ns, progressed=mark > self._seen_mark)
            self._seen_mark = mark
            self._take_window(force=force)
            if self.congestion_control.measures_at(now_ns):
                request = Rttm(
                    session_id=self.path.session_id,
                    stream_id=self.path.stream_id,
                    echo_timestamp=now_ns,
                    receiver_id=self.receiver_id,
                    flags=layout.RTTM_FLAG_REPLY,
                )
                self.path.send_frame(request.encode(), now_ns)
        self._set_deadline()

    def on_measurement(self, measure: Rttm, now_ns: int) -> bool:
        """Handle an RTTM frame of the sender; return False if its timestamp is impossible."""
        if measure.receiver_id == 0 and not measure.is_request:
            if self.one_way is not None and self._epoch_ns is not None:
                return self.one_way.observe(measure.echo_timestamp, self._epoch_ns())
        elif measure.is_request:
            if measure.receiver_id in (0, self.receiver_id) and now_ns - self._measured_ns >= MEASURE_SPACING_NS:
                self._measured_ns = now_ns
                self.path.send_frame(measure.reply().encode(), now_ns)
        elif measure.receiver_id == self.receiver_id:
            self.congestion_control.on_measurement(measure, now_ns)
        return True

    def on_status_due(self, now_ns: int) -> bool:
        """Send the frames that replace or accompany a status message; return whether an ERR frame was sent."""
        path = self.path
        if self._rejection is not None:
            error = ErrorFrame(
                session_id=path.session_id,
                stream_id=path.stream_id,
                receiver_id=self.receiver_id,
                group_tag=self.group_tag,
                error_code=IMAGE_REJECTED,
                text=self._rejection,
            )
            return bool(path.send_frame(error.encode(), now_ns))
        if self._response_session_id is not None:
            response = ResponseSetup(
                session_id=path.session_id,
                stream_id=path.stream_id,
                response_session_id=self._response_session_id,
            )
            path.send_frame(response.encode(), now_ns)
        return False

    def reject(self, reason: str) -> None:
        self._rejection = ErrorFrame.cut(reason)
        self.path.rejected = True
        self.path.status_now()

    def set_response_session(self, session_id: int | None) -> None:
        """Send the session of the response stream with each status message from now on, or stop if it is None."""
        self._response_session_id = session_id
        self.path.status_events = session_id is not None
        if session_id is not None:
            self.path.status_now()

    def _take_window(self, *, force: bool) -> None:
        self.path.window_length = self.congestion_control.window_length
        if force:
            self.path.force_status = True

    def _set_deadline(self) -> None:
        self.path.next_python_ns = self.congestion_control.deadline_ns
