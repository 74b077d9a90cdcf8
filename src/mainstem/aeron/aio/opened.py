"""What every resource has that ``await`` or ``async with`` opens."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from mainstem.aeron.aio.waiting import AsyncResource
from mainstem.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Generator

    from mainstem.aeron.client.requests import RequesterState, ResponderState

S = TypeVar("S", bound="RequesterState | ResponderState")


class OpenedResource(AsyncResource, Generic[S]):
    """A resource that ``await`` or ``async with`` opens. One that is dropped before that warns, as a coroutine does."""

    _made: S | None = None
    # The constructor makes it false once the arguments are accepted.
    _begun = True

    async def _open(self) -> S:
        raise NotImplementedError

    async def _opened(self) -> Self:
        if not self._begun:
            self._begun = True
            self._made = await self._open()
            self._inner: Any = self._made.subscription
        # Raises where an earlier attempt failed.
        _ = self._state
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._opened().__await__()

    async def __aenter__(self) -> Self:
        return await self._opened()

    @property
    def _state(self) -> S:
        if self._made is None:
            raise ClosedError(f"the {type(self).__name__} is not open: `await` or `async with` opens it")
        return self._made

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._made is not None and super().closed

    @property
    def error(self) -> Exception | None:
        """What ended it without ``close``: a DriverTimeout or a ClientTimeout; else None."""
        return None if self._made is None else super().error

    def close(self) -> None:
        """Closes it with its publications and subscription, without waiting. May be called twice.

        Example:
            >>> requester.close()
        """
        self._begun = True
        if self._made is not None:
            self._made.close()

    def __repr__(self) -> str:
        if self._made is None:
            return f"<{type(self).__name__}, not open>"
        return f"<asynchronous {type(self).__name__} on {self._inner!r}>"

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(f"a {type(self).__name__} was never awaited", RuntimeWarning, stacklevel=1, source=self)
