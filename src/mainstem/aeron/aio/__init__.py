"""Aeron for asyncio: the same client, whose waiting is the event loop's.

Example:
    >>> async with mainstem.aio.connect() as aeron:
    ...     subscription = await aeron.add_subscription("aeron:ipc", 1001)
    ...     async for message in subscription:
    ...         print(message)
"""

from __future__ import annotations

from mainstem.aeron.aio.client import AsyncAeron, connect
from mainstem.aeron.aio.poller import AsyncPoller
from mainstem.aeron.aio.requests import AsyncReplier, AsyncRequest, AsyncRequester
from mainstem.aeron.aio.streams import AsyncPublication, AsyncSubscription

__all__ = [
    "AsyncAeron",
    "AsyncPoller",
    "AsyncPublication",
    "AsyncReplier",
    "AsyncRequest",
    "AsyncRequester",
    "AsyncSubscription",
    "connect",
]
