"""The object that an asyncio ``connect`` or ``serve`` returns: await it, or use it with ``async with``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import TracebackType

T = TypeVar("T")


class Opening(Generic[T]):
    """A resource to open once: ``await`` returns it, and ``async with`` also closes it.

    Until then, nothing happens. An opening that is dropped without either warns, like a coroutine that was never awaited.
    """

    def __init__(self, open_resource: Callable[[], Awaitable[T]], name: str) -> None:
        self._open: Callable[[], Awaitable[T]] | None = open_resource
        self._name = name
        self._opened: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        open_resource, self._open = self._open, None
        if open_resource is None:
            raise RuntimeError(f"{self._name} cannot be awaited twice; call it again")
        return open_resource().__await__()

    async def __aenter__(self) -> T:
        opened: Any = await self
        entered: T = await opened.__aenter__()
        self._opened = opened
        return entered

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        opened, self._opened = self._opened, None
        assert opened is not None, "entered before"
        suppressed: bool | None = await opened.__aexit__(kind, error, trace)
        return suppressed

    if not TYPE_CHECKING:  # a type checker rejects the attribute anyway

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"{self._name} is not open yet, so it has no {name!r}: await it, or use 'async with'")

    def discard(self) -> None:
        """Discard the opening: it opens nothing and does not warn."""
        self._open = None

    def __del__(self) -> None:
        if getattr(self, "_open", None) is not None:
            warnings.warn(f"{self._name} was never awaited", RuntimeWarning, stacklevel=2)
