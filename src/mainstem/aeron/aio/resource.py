"""The part that publications, subscriptions and counters for asyncio share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from mainstem._internal.clock import timeout_of
from mainstem.aeron.aio.waiting import result_of
from mainstem.aeron.client.resource import Resource

if TYPE_CHECKING:
    from types import TracebackType


class Closing:
    """A resource of an asyncio client that can be closed."""

    def _end(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Close it. Calling it again does nothing."""
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Destinations(Resource, Closing):
    """A resource that can have several channels."""

    async def add_destination(self, channel: str, *, timeout: float | None = None) -> int:
        """Add a destination. If the call is cancelled, no destination is added."""
        return await result_of(self._conductor, self._conductor.add_destination(self, channel), timeout)

    async def remove_destination(self, destination: str | int, *, timeout: float | None = None) -> None:
        """Remove a destination. If the call is cancelled, the destination may have been removed."""
        timeout = timeout_of(timeout)
        await result_of(self._conductor, self._conductor.remove_destination(self, destination), timeout)
