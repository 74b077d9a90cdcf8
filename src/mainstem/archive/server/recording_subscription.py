"""The subscriptions whose images an archive records, and the examination of a recording that an image extends."""

from __future__ import annotations

from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import ArchiveErrorCode

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainstem.aeron.client.operation import Operation
    from mainstem.archive.server.control_session import ControlSession
    from mainstem.archive.server.recording_session import RecordingSession
    from mainstem.recording.earlier_frames import EarlierFrames


@dataclass(eq=False)
class RecordingSubscription:
    """A subscription whose images are recorded.

    Attributes:
        registration_id: The driver's registration id; -1 until the subscription has been added.
        arrived: Images that have become available and are not being recorded yet.
        waiting: Images that are not being recorded because of a limit.
        extends: The recording that the image continues; None for new recordings.
        sessions: The active recordings.
        latest: The recording that began last; None before the first.
        error: The most recent error; empty if nothing failed.
        is_examining: Whether the recording to extend is being examined.
        ends_when_idle: Whether the subscription ends with its last active recording, because one was stopped by its id.
    """

    control: ControlSession
    correlation_id: int
    _: KW_ONLY
    key: str
    channel: str
    original_channel: str
    stripped_channel: str
    stream_id: int
    auto_stop: bool
    extends: int | None = None
    registration_id: int = -1
    arrived: deque[Any] = field(default_factory=deque)
    waiting: deque[Any] = field(default_factory=deque)
    sessions: list[RecordingSession] = field(default_factory=list)
    latest: RecordingSession | None = None
    error: str = ""
    ends_when_idle: bool = False
    is_examining: bool = False
    operation: Operation[Any] | None = None
    subscription: Any = None

    def fail(self, text: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> None:
        """Report an error that occurred after the response, under the correlation id of the request."""
        self.error = text
        self.control.fail(self.correlation_id, text, code)

    def close(self) -> None:
        """Close the subscription, or cancel adding it."""
        if self.operation is not None:
            self.operation.cancel()
            self.operation = None
        if self.subscription is not None:
            self.subscription.close()


class Extension:
    """Examines a recording that an image continues, which can take long, before it is extended."""

    def __init__(
        self,
        entry: RecordingSubscription,
        image: Any,
        recording_id: int,
        steps: Generator[None, None, EarlierFrames],
    ) -> None:
        self.entry, self.image, self.recording_id = entry, image, recording_id
        self.earlier: EarlierFrames | None = None
        self._steps = steps
        entry.is_examining = True

    def step(self) -> bool:
        """Read some more. Return whether that was all, and ``earlier`` is known."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.earlier = end.value
            return True
        return False

    def close(self) -> None:
        self.entry.is_examining = False
        self._steps.close()
