"""The examination of a recording that an image extends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainstem.archive.server.recording_session import RecordingSubscription
    from mainstem.recording.earlier_frames import EarlierFrames


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
