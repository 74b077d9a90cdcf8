"""Subscriptions: where messages come out. The polls are the compiled reader's own; the rest is here."""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, overload

from mainstem._core.log.columns import Columns
from mainstem._core.log.read import SubscriptionReader
from mainstem.aeron.client.arrow import COLUMNS, poll_arrow
from mainstem.aeron.client.polled import polled
from mainstem.aeron.client.resource import Destinations, ResourceOwner
from mainstem.errors import LocalProtocolError, Timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from mainstem._core.log.fragment import Message
    from mainstem.aeron.client.asynchronous import AsyncOperation
    from mainstem.aeron.client.image import Image

MESSAGES_AT_ONCE = 256  # how many messages an iterator takes from the log before it hands on the first


class ImageOwner(ResourceOwner, Protocol):
    """The part of the conductor that a subscription calls for its images."""

    def reject_image(self, image: Image, reason: str) -> AsyncOperation[None]:
        """Rejects an image."""
        ...

    def release_image(self, image: Image) -> None:
        """Closes an image, and unmaps its log in a while."""
        ...


class Subscription(Destinations, SubscriptionReader):
    """A subscription to a channel and a stream id; ``images`` are the streams that it receives.

    ``poll`` and its relatives never wait; ``messages`` does. One thread polls.

    Attributes:
        channel: The channel that it was added with.
        stream_id: The stream id.
        registration_id: The correlation id of the command that added it.

    Example:
        >>> with aeron.add_subscription("aeron:ipc", 1001) as subscription:
        ...     for message in subscription.messages():
        ...         print(message)
    """

    _conductor: ImageOwner

    def __init__(
        self,
        conductor: ImageOwner,
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
        self._columns = Columns(COLUMNS)
        self._taken: Iterator[Any] = iter(())
        self._taken_with_metadata = False

    @property
    def open_images(self) -> tuple[Image, ...]:
        """The images that can be read now."""
        return cast("tuple[Image, ...]", self.images)

    @property
    def is_connected(self) -> bool:
        """Whether there is an image to read from."""
        return any(not image.is_closed for image in self.images)

    @property
    def is_end_of_stream(self) -> bool:
        """Whether there were images, and every one of them has ended and was read."""
        return self._had_image and all(image.is_end_of_stream for image in self.images)

    def image_by_session_id(self, session_id: int) -> Image | None:
        """Returns the image of a session.

        Args:
            session_id: The publication's session id.

        Returns:
            The image; None when there is none.

        Example:
            >>> image = subscription.image_by_session_id(publication.session_id)
        """
        return next((image for image in self.open_images if image.session_id == session_id), None)

    @overload
    def messages(self, *, timeout: float | None = None, metadata: Literal[False] = False) -> Iterator[bytes]: ...

    @overload
    def messages(self, *, timeout: float | None = None, metadata: Literal[True]) -> Iterator[Message]: ...

    @overload
    def messages(self, *, timeout: float | None = None, metadata: bool) -> Iterator[bytes] | Iterator[Message]: ...

    def messages(self, *, timeout: float | None = None, metadata: bool = False) -> Iterator[bytes] | Iterator[Message]:
        """Yields whole messages as they come, until every image has ended, or the subscription is closed.

        An iterator that is left, by ``break`` or by a time-out, loses nothing: the next one goes on behind the last message that
        was yielded. What an iterator has taken from the log, at most 256 messages, is not seen by ``poll``.

        Args:
            timeout: Seconds to wait for the next message; None waits for ever.
            metadata: True yields a ``Message``: the bytes with position, session, reserved value and image.

        Yields:
            One message after another.

        Raises:
            Timeout: Nothing came for ``timeout`` seconds.
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.
            LocalProtocolError: An iterator without metadata was left before the messages that it had taken were yielded.

        Example:
            >>> for message in subscription.messages(timeout=10.0, metadata=True):
            ...     print(message.position, message.session_id, message.payload)
        """
        waiting = self._conductor.waiting(timeout)
        while True:
            batch = self.take_messages(MESSAGES_AT_ONCE, metadata)
            if batch is not None:
                yield from batch
                waiting.restart()
            elif self._closed or self.is_end_of_stream:
                self.raise_failure()
                return
            elif not waiting.step(self):
                raise Timeout(f"nothing came on {self!r} for {timeout:g} s", timeout=timeout)

    def taken_messages(self, metadata: bool) -> Iterator[Any]:
        """Returns the messages that an iterator took and did not yield, for the iterators.

        Args:
            metadata: Whether they are wanted with metadata.

        Returns:
            An iterator over them, shared by all who ask.

        Raises:
            LocalProtocolError: They were taken without metadata, and are wanted with it.

        Example:
            >>> yield from subscription.taken_messages(False)
        """
        if metadata == self._taken_with_metadata:
            return self._taken
        rest: list[Any] = []
        kept, taken = iter(rest), self._taken
        # Calls nothing: no signal handler runs between the two.
        rest += taken
        self._taken = kept
        if not rest:
            return self._taken
        if metadata:
            raise LocalProtocolError(
                f"{self!r}: an iterator without metadata was left with {len(rest)} messages: iterate without metadata first"
            )
        payloads = iter([message.payload for message in rest])
        self._taken, self._taken_with_metadata = payloads, False
        return self._taken

    def take_messages(self, limit: int, metadata: bool) -> Iterator[Any] | None:
        """Takes messages from the log, for the iterators: those that another iterator took come first.

        What is not yielded of them stays with the subscription.

        Args:
            limit: The most messages.
            metadata: Whether each is a ``Message``.

        Returns:
            An iterator over them; None when there is none.

        Raises:
            LocalProtocolError: There are some that were taken without metadata, and are wanted with it.

        Example:
            >>> batch = subscription.take_messages(256, False)
        """
        rest = self.taken_messages(metadata)
        if length_hint(rest):
            return rest
        batch: list[Any] = []
        taken = iter(batch)
        # Kept before they come from the log: a signal handler that raises here takes none of them.
        self._taken, self._taken_with_metadata = taken, metadata
        batch.extend(polled(self.poll_with_metadata if metadata else self.poll_bytes, limit))
        return taken if batch else None

    def raise_failure(self) -> None:
        """Raises the error that ended the client, if one did.

        Raises:
            DriverTimeout: The driver ended.
            ClientTimeout: The driver timed this client out.

        Example:
            >>> if not subscription.poll(handler):
            ...     subscription.raise_failure()
        """
        self._conductor.raise_failure()

    def poll_arrow(self, limit: int = 4096) -> pa.RecordBatch:
        """Returns whole messages of all images as a record batch.

        Args:
            limit: The most messages.

        Returns:
            A batch with the columns position, session_id, reserved_value and payload; without rows when there is none.

        Raises:
            MissingExtraError: pyarrow is not installed.

        Example:
            >>> batch = subscription.poll_arrow(1000)
        """
        images = self.open_images
        first = self._next_arrow % len(images) if images else 0
        self._next_arrow = first + 1
        return poll_arrow(images[first:] + images[:first], limit, self._columns)

    def reject_image(self, image: Image, reason: str) -> AsyncOperation[None]:
        """Rejects an image, for ``Image.reject``.

        Args:
            image: An image of this subscription.
            reason: The reason, at most 1023 bytes.

        Returns:
            The pending operation.

        Example:
            >>> operation = subscription.reject_image(image, "unknown schema")
        """
        return self._conductor.reject_image(image, reason)

    def add_image(self, image: Image) -> None:
        """Adds an image, for the conductor.

        Args:
            image: The image that became available.

        Example:
            >>> subscription.add_image(image)
        """
        self._had_image = True
        self.set_images((*self.images, image))

    def remove_image(self, correlation_id: int) -> Image | None:
        """Removes an image, for the conductor.

        Args:
            correlation_id: The image's correlation id.

        Returns:
            The image; None when there is none.

        Example:
            >>> image = subscription.remove_image(correlation_id)
        """
        image = next((image for image in self.open_images if image.correlation_id == correlation_id), None)
        if image is not None:
            self.set_images(other for other in self.images if other is not image)
        return image

    def _leave_to_parent(self) -> None:
        """Closes it in a forked child, for the conductor: its images stay open, since their positions are the parent's."""
        self._closed = True
        self._taken = iter(())
        self.set_images(())

    def _detach(self) -> None:
        self._closed = True
        images = self.open_images
        self.set_images(())
        for image in images:
            self._conductor.release_image(image)

    def __del__(self) -> None:
        self._warn_if_open()
