"""Opening: awaited or entered, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest

from mainstem._internal.opening import Opening

if TYPE_CHECKING:
    from types import TracebackType


class Resource:
    def __init__(self) -> None:
        self.events: list[str] = []

    async def open(self) -> Self:
        self.events.append("open")
        return self

    async def __aenter__(self) -> Self:
        self.events.append("enter")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.events.append(f"exit {kind.__name__ if kind else None}")


async def test_awaiting_opens_and_leaves_open() -> None:
    resource = Resource()
    opening = Opening(resource.open, "connect()")
    assert not resource.events
    assert await opening is resource
    assert resource.events == ["open"]
    with pytest.raises(RuntimeError, match="awaited twice"):
        await opening


async def test_entering_opens_and_leaving_closes_with_the_error() -> None:
    resource = Resource()

    async def use() -> None:
        async with Opening(resource.open, "connect()") as entered:
            assert entered is resource
            assert resource.events == ["open", "enter"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await use()
    assert resource.events == ["open", "enter", "exit ZeroDivisionError"]


def test_an_opening_that_is_dropped_warns() -> None:
    openings = [Opening(Resource().open, "connect()")]
    with pytest.warns(RuntimeWarning, match=r"connect\(\) was never awaited"):
        openings.clear()


def test_using_an_unopened_object_says_to_open_it() -> None:
    opening = Opening(Resource().open, "connect()")
    with pytest.raises(
        AttributeError, match=r"connect\(\) is not open yet, so it has no 'events': await it, or use 'async with'"
    ):
        opening.events  # type: ignore[attr-defined]  # noqa: B018
    opening.discard()
