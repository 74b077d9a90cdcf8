"""Starting asyncio tasks from inside a step of a protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def start_task(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> asyncio.Task[T]:
    """Start a task whose first step runs after the caller's, even if the loop's task factory starts tasks eagerly.

    An eager task (`asyncio.eager_task_factory`) runs inside the call that creates it. One that is created while a
    connection dispatches its events would call back into that connection before the step is complete.
    """
    return loop.create_task(work if loop.get_task_factory() is None else _after_this_step(work))


async def _after_this_step(work: Coroutine[Any, Any, T]) -> T:
    try:
        await asyncio.sleep(0)
    except BaseException:
        work.close()
        raise
    return await work
