"""The parts of a subscription and an image that recording uses, so that other protocols can provide them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem._core.memory.buffer import AtomicBuffer


class RecordableImage(Protocol):
    @property
    def session_id(self) -> int: ...
    @property
    def stream_id(self) -> int: ...
    @property
    def initial_term_id(self) -> int: ...
    @property
    def term_length(self) -> int: ...
    @property
    def mtu(self) -> int: ...
    @property
    def source_identity(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def correlation_id(self) -> int:
        """The number that identifies the image at its driver."""
        ...

    @property
    def driver_start_ms(self) -> int:
        """When the driver started. Another driver can use the same number for an image."""
        ...

    @property
    def closed(self) -> bool: ...
    @property
    def is_end_of_stream(self) -> bool: ...
    @property
    def log(self) -> AtomicBuffer: ...
    def readable(self) -> tuple[int, int]:
        """Return the offset of the next frame in ``log``, and the end of its term."""
        ...

    def release(self, position: int, /) -> None: ...


class RecordableSubscription(Protocol):
    """The part of a subscription that the recorder uses."""

    @property
    def channel(self) -> str:
        """The channel as it was passed to the subscription."""
        ...

    @property
    def images(self) -> Iterable[Any]:
        """The currently available images."""
        ...
