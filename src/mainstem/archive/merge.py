"""A recording followed by the live stream, in one image: the code that both variants of ReplayMerge share.

Theory of operation. The subscription has two destinations: one for the archive's replay, and one for the live stream. Both have
the session id of the stream, so the driver combines them into one image. The replay begins alone. When it is near the recorded
position, the merge adds the live destination. When both feed the image and the image has reached the recorded position, the merge
removes the replay's destination.

The steps are a generator that each poll resumes, so a merge makes progress while its subscriber reads.
"""

from __future__ import annotations

import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import Deadline
from mainstem._internal.validation import check_int, check_seconds
from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.client.polled import polled
from mainstem.aeron.client.waiting import Wait
from mainstem.archive.calls import TIMEOUT, cut_short
from mainstem.archive.channels import has_any_port, with_bound_port
from mainstem.errors import ClosedError, ConfigurationError, ConnectionLost, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.log.read import Message
    from mainstem.aeron.client.waiting import Steps
    from mainstem.archive.calls import Calls

PROGRESS_TIMEOUT = 5.0  # seconds
MESSAGES_AT_ONCE = 256
# Bytes, and at most a quarter of a term: how near the replay must be before the live stream is joined.
MAX_LIVE_DISTANCE = 32 << 20
FIRST_PAUSE, LAST_PAUSE = 0.016, 0.5  # seconds between requests for the recorded position, doubling
ENDLESS = (1 << 63) - 1
ACTIVE_TRANSPORTS = 2
# Seconds that both must feed the image. By then a status message, sent every 200 ms, has reached the live sender.
SETTLING_TIME = 0.25


def join_live(
    calls: Calls[Any],
    subscription: Any,
    image: Any,
    live_destination: str,
    target: int,
    *,
    position: Callable[[], int],
    ask: Callable[[], Steps[int | None]],
    has_ended: Callable[[], bool],
    note: Callable[[str], None],
    timeout: float | None = None,
) -> Steps[bool]:
    """Wait for a replay to catch up, add the live destination, and return once both feed the image.

    ``target`` is the last known recorded position. ``position`` returns the position up to which the replay has been consumed,
    ``ask`` asks for the recorded position (None if the recording is no longer active), ``has_ended`` returns whether the replay has
    ended, and ``note`` is told the current step. Returns False if the replay or the recording has ended.
    """
    is_live_added, pause = False, FIRST_PAUSE
    settled: Deadline | None = None
    while True:
        note(f"position {target}")
        while position() < target:
            if has_ended():
                return False
            yield None
        found = yield from ask()
        if found is None or has_ended():
            return False
        target = found
        distance = target - position()
        if image.active_transport_count < ACTIVE_TRANSPORTS:
            settled = None
        elif settled is None:
            settled = Deadline(calls.clock, SETTLING_TIME)
        if not is_live_added and distance <= min(image.term_length // 4, MAX_LIVE_DISTANCE):
            note("the live destination")
            adding = calls.conductor.add_destination(subscription, live_destination)
            yield from calls.result_of(adding, Deadline(calls.clock, timeout), "the live destination")
            is_live_added, pause = True, FIRST_PAUSE
        elif is_live_added and distance <= 0 and settled is not None and settled.expired:
            return True
        else:
            note("the live stream")
            resumed = Deadline(calls.clock, pause)
            pause = min(2 * pause, LAST_PAUSE)
            while not resumed.expired:
                if has_ended():
                    return False
                yield None


class MergeBase:
    """The part of a merge that never blocks."""

    def __init__(
        self,
        calls: Calls[Any],
        subscription: Any,
        recording_id: int,
        destinations: tuple[str, str],
        position: int | None,
        progress_timeout: float,
    ) -> None:
        check_seconds({"progress_timeout": progress_timeout})
        if position is not None:
            check_int({"position": position}, min_value=0)
        if ChannelUri.parse(subscription.channel).values.get("control-mode") != "manual":
            raise ConfigurationError(f"Subscription URI must have 'control-mode=manual' uri={subscription.channel}")
        for name, channel in zip(("replay_destination", "live_destination"), destinations, strict=True):
            if ChannelUri.parse(channel).is_ipc:
                raise ConfigurationError(f"{name}={channel!r}: must be a UDP channel")
        self.subscription = subscription
        self.recording_id = recording_id
        self._calls = calls
        self._replay_destination, self._live_destination = destinations
        self._position = position
        self._timeout = progress_timeout
        self._closed = False
        self._error: Exception | None = None
        self._image: Any = None
        self._is_merged = False
        self._step = "the replay's destination"
        self._destination: int | None = None
        self._replay_id: int | None = None
        self._generation = -1
        self._steps: Steps[None] | None = self._merging()
        self._seen: tuple[str, int] | None = None
        self._deadline = Deadline(calls.clock, progress_timeout)
        self._taken: deque[Message] = deque()
        self._read_position = -1
        self._recorded: int | None = None  # the last known recorded position

    @property
    def is_merged(self) -> bool:
        """Whether only the live stream feeds the image."""
        return self._is_merged

    @property
    def closed(self) -> bool:
        """Whether the merge was closed, by ``close``, by an error, or with its subscription."""
        return self._closed or bool(self.subscription.closed)

    @property
    def error(self) -> Exception | None:
        """The error that ended the merge; None if it was closed or has not ended."""
        return self._error

    @property
    def position(self) -> int:
        """The position after the last message returned; -1 if there is none yet. Another merge can begin there."""
        return self._read_position

    def poll_bytes(self, limit: int = MESSAGES_AT_ONCE) -> list[bytes]:
        """Continue the merge, and return whole messages without waiting. Raises the errors of ``messages``.

        Args:
            limit: The maximum number of messages.
        """
        self._take(limit)
        return [self._hand_out() for _ in range(min(limit, len(self._taken)))]

    def _hand_out(self) -> bytes:
        message = self._taken.popleft()
        self._read_position = message.position
        return message.payload

    def _take(self, limit: int) -> None:
        """Take messages from the log, unless some are left from the last poll."""
        self._work()
        if self._image is not None and not self._taken:
            self._taken.extend(polled(self._image.poll_with_metadata, limit))

    def _taking(self, timeout: float | None) -> Steps[bool]:
        """Wait for messages and take them. Return False once no more will arrive."""
        deadline = Deadline(self._calls.clock, timeout)
        while True:
            self._take(MESSAGES_AT_ONCE)
            if self._taken or self._has_ended:
                return bool(self._taken)
            if (left := deadline.left) == 0:
                raise Timeout(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)
            yield Wait(left, self.subscription)

    @property
    def _has_ended(self) -> bool:
        """Whether no more messages will arrive: the merge was closed, or the live stream has ended."""
        return self.closed or (self._is_merged and (self._image.closed or bool(self._image.is_end_of_stream)))

    def _work(self) -> None:
        """Take the next step of the merge."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._steps is None or self._closed:
            return
        try:
            with self._calls.lock:
                next(self._steps)
            self._check_progress()
        except StopIteration:
            self._steps = None
        except BaseException as error:
            # An exception raised by a signal handler ends the generator too.
            interrupted = ClosedError(f"the merge of recording {self.recording_id} was interrupted: start another")
            self._error = error if isinstance(error, Exception) else interrupted
            self._end()
            raise

    def _check_progress(self) -> None:
        progress = self._step, -1 if self._image is None else self._image.position
        if progress != self._seen:
            self._seen = progress
            self._deadline = Deadline(self._calls.clock, self._timeout)
        elif self._deadline.expired:
            raise Timeout(
                f"merge of recording {self.recording_id}: no progress for {self._timeout:g} s at position {self.position},"
                f" waiting for {self._step}",
                timeout=self._timeout,
            )

    def _merging(self) -> Steps[None]:
        calls, subscription, conductor = self._calls, self.subscription, self._calls.conductor
        described = yield from calls.list_recording(self.recording_id)
        if described is None:
            # This raises the archive's own error, with its code.
            what = f"merge of recording {self.recording_id}"
            yield from calls.asking(what, TIMEOUT, "StartPositionRequest", recording_id=self.recording_id)
            raise ConnectionLost(f"merge of recording {self.recording_id}: the archive does not list it")
        self._generation = calls.session.generation
        # ``progress_timeout`` limits a merge, so its commands have no limit of their own, unlike those of a replication.
        never = Deadline(calls.clock, None)
        adding = conductor.add_destination(subscription, self._replay_destination)
        self._destination = yield from calls.result_of(adding, never, self._step)
        destination = self._replay_destination
        if has_any_port(destination):
            while not (addresses := subscription.local_addresses):
                yield None
            destination = with_bound_port(destination, addresses[0])
        self._step = "the recorded position"
        target = yield from self._ask_position()
        endpoint = ChannelUri.parse(destination).endpoint
        channel = f"aeron:udp?endpoint={endpoint}|session-id={described.session_id}|linger=0|eos=false"
        self._step = "the replay"
        self._replay_id = yield from calls.start_replay(
            self.recording_id, channel, subscription.stream_id, position=self._position, length=ENDLESS
        )
        self._step = "the replay's image"
        while (image := subscription.image_by_session_id(described.session_id)) is None:
            yield None
        self._image = image
        yield from join_live(
            calls,
            subscription,
            image,
            self._live_destination,
            target,
            position=lambda: image.position,
            ask=self._ask_position,
            has_ended=lambda: self._check_image(image),
            note=self._note,
        )
        assert self._destination is not None, "the replay came by it"
        removing = conductor.remove_destination(self.subscription, self._destination)
        self._destination = None
        self._is_merged = True
        yield from calls.result_of(removing, never, "the removal of the replay's destination")
        calls.send_once("StopReplayRequest", replay_session_id=self._replay_id)
        self._replay_id = None

    def _note(self, step: str) -> None:
        self._step = step

    def _ask_position(self) -> Steps[int]:
        self._recorded = yield from self._calls.max_recorded_position(self.recording_id)
        return self._recorded

    def _check_image(self, image: Any) -> bool:
        """Return False if the image has not ended. Raises ConnectionLost if it has."""
        why = ""
        if self._calls.session.generation != self._generation:
            why = self._calls.loss
        elif image.closed:
            why = "the image ended before the live stream was joined"
        if why:
            what = f"merge of recording {self.recording_id}"
            raise cut_short(what, image.position, self._recorded, why)
        return False

    def _end(self) -> None:
        """Stop the replay if it is still running. The subscription stays open."""
        if self._closed:
            return
        self._closed = True
        with self._calls.lock:
            if self._steps is not None:
                self._steps.close()
                self._steps = None
            if self._destination is not None and not self.subscription.closed:
                self._calls.conductor.remove_destination(self.subscription, self._destination)
            if self._replay_id is not None:
                self._calls.send_once("StopReplayRequest", replay_session_id=self._replay_id)
            self._destination = self._replay_id = None

    def __del__(self) -> None:
        # Before it is first read and after it has merged, a merge holds nothing.
        if getattr(self, "_steps", None) is not None and self._seen is not None and not self._closed:
            try:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            finally:
                # This runs in whatever thread collects it, with any locks that thread holds.
                self._calls.dropped.append(self._end)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "merged" if self._is_merged else f"waiting for {self._step}"
        return f"<ReplayMerge of recording {self.recording_id} at {self.position}, {state}>"
