"""A publisher that holds its stream while the recorder is down, so that the recorder, once restarted, records all of it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.support.waiting import STALL_S

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.recording import RecorderSlot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH, PAUSE_S = 40, 0.004


class HeldPublisher:
    """Publishes ``payload(number)`` for the numbers up to ``goal``, from its own thread."""

    def __init__(
        self, directory: str, recordings: Path, *, channel: str, stream_id: int, payload: Callable[[int], bytes]
    ) -> None:
        self._directory, self._recordings = directory, recordings
        self._channel, self._stream_id, self._payload = channel, stream_id, payload
        self._end = threading.Event()
        self.goal = self.published = 0
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._publish()
        except BaseException as error:
            self.error = error

    def _publish(self) -> None:
        from mainstem import Aeron

        with (
            Aeron.connect(self._directory) as aeron,
            aeron.add_subscription(self._channel, self._stream_id) as held,
            aeron.add_exclusive_publication(self._channel, self._stream_id) as publication,
            RecorderSlot(self._recordings) as anchor,
        ):
            anchor.add_subscription(held)
            while not self._end.is_set():
                anchor.do_work(SYSTEM_CLOCK.monotonic_ns())
                for _ in range(min(BATCH, self.goal - self.published)):
                    if publication.offer(self._payload(self.published)) < 0:
                        break
                    self.published += 1
                time.sleep(PAUSE_S)

    def close(self) -> None:
        self._end.set()
        self._thread.join(STALL_S)
