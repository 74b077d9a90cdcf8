"""Time limits of asyncio calls, which end in Mainstem's own `Timeout`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from mainstem.errors import Delivery, Timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def within(timeout: float | None, work: Awaitable[T], what: str, *, delivery: Delivery = Delivery.UNKNOWN) -> T:
    """Returns what ``work`` returns, in ``timeout`` seconds; it is cancelled then. None waits forever.

    Raises:
        Timeout: The timeout passed. It says ``what`` took so long, and what was delivered by then.
    """
    if timeout is None:
        return await work
    deadline = asyncio.timeout(timeout)
    try:
        async with deadline:
            return await work
    except TimeoutError:
        if not deadline.expired():
            raise
        error = Timeout(f"{what}: timed out after {timeout:g} s", timeout=timeout)
        error.delivery = delivery
        raise error from None
