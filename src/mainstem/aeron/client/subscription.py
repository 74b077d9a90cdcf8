"""Subscriptions: where messages come out. The polls are the compiled reader's own; here are the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from mainstem._core.log.columns import Columns
from mainstem._core.log.read import SubscriptionReader
from mainstem.aeron.client.arrow import WANTED, poll_arrow
from mainstem.aeron.client.resource import Resource
from mainstem.errors import TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.conductor import ClientConductor
    from mainstem.aeron.client.image import Image

MESSAGES_AT_ONCE = 256  # how many messages an iterator takes from the log before it hands on the first


class Subscription(Resource, SubscriptionReader):
    """A channel and a stream id that are listened to; ``images`` are the streams that were found there.

    ``poll`` and its relatives never wait; ``messages`` does. One thread polls.
    """

    def __init__(
        self,
        conductor: ClientConductor,
        registration_id: int,
        channel: str,
        stream_id: int,
        channel_status_id: int,
        on_available_image: Callable[[Image], object] | None,
        on_unavailable_image: Callable[[Image], object] | None,
    ) -> None:
        super().__init__()
        self._open(conductor, registration_id)
        self.channel = channel
        self.stream_id = stream_id
        self.channel_status_id = channel_status_id
        self.on_available_image = on_available_image
        self.on_unavailable_image = on_unavailable_image
        self._had_image = False
        self._next_arrow = 0
        self._columns = Columns(WANTED)

    @property
    def open_images(self) -> tuple[Image, ...]:
        """The streams that can be read now."""
        return cast("tuple[Image, ...]", self.images)

    @property
    def is_connected(self) -> bool:
        """Whether there is a stream to read from."""
        return any(not image.is_closed for image in self.images)

    @property
    def is_end_of_stream(self) -> bool:
        """Whether there were streams and every one of them has ended and was read."""
        return self._had_image and all(image.is_end_of_stream for image in self.images)

    def image_by_session_id(self, session_id: int) -> Image | None:
        """The stream of that session, if it is there."""
        return next((image for image in self.open_images if image.session_id == session_id), None)

    def messages(self, *, timeout: float | None = None) -> Iterator[bytes]:
        """Whole messages as they come, until every stream that was there has ended, or the subscription is closed.

        Raises TimedOut when nothing came for ``timeout`` seconds (None waits for ever).
        """
        waiting = self._conductor.waiting(timeout)
        while True:
            batch = self.poll_bytes(MESSAGES_AT_ONCE)
            if batch:
                yield from batch
                waiting.restart()
            elif self._closed or self.is_end_of_stream:
                self.raise_failure()
                return
            elif not waiting.step(self):
                raise TimedOut(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)

    def raise_failure(self) -> None:
        """Raises why the client ended, when it did not end in good order."""
        self._conductor.raise_failure()

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Up to ``limit`` whole messages of all images: columns position, session_id, reserved_value and payload."""
        images = self.open_images
        first = self._next_arrow % len(images) if images else 0
        self._next_arrow = first + 1
        return poll_arrow(images[first:] + images[:first], limit, self._columns)

    def add_destination(self, channel: str, *, timeout: float | None = None) -> int:
        """Listens on one more channel (the subscription's must say ``control-mode=manual``); the destination's id."""
        return self._conductor.add_destination(self, channel).wait(timeout)

    def async_add_destination(self, channel: str) -> AsyncOperation[int]:
        """The same without waiting."""
        return self._conductor.add_destination(self, channel)

    def remove_destination(self, destination: str | int, *, timeout: float | None = None) -> None:
        """Stops listening on a channel, named as it was added or by the id that ``add_destination`` gave."""
        self._conductor.remove_destination(self, destination).wait(timeout)

    def reject_image(self, image: Image, reason: str) -> AsyncOperation[None]:
        """Asks the driver to refuse that stream."""
        return self._conductor.reject_image(image, reason)

    def add_image(self, image: Image) -> None:
        """For the conductor: a stream became available."""
        self._had_image = True
        self.set_images((*self.images, image))

    def remove_image(self, correlation_id: int) -> Image | None:
        """For the conductor: a stream became unavailable."""
        image = next((image for image in self.open_images if image.correlation_id == correlation_id), None)
        if image is not None:
            self.set_images(other for other in self.images if other is not image)
        return image

    def _detach(self) -> None:
        self._closed = True
        images = self.open_images
        self.set_images(())
        for image in images:
            self._conductor.let_go(image)

    def __del__(self) -> None:
        self._warn_if_open()
