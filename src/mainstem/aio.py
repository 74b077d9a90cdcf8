"""Aeron for asyncio: the same client, whose waiting is the event loop's.

Example:
    >>> async with mainstem.aio.connect() as aeron:
    ...     subscription = await aeron.add_subscription("aeron:ipc", 1001)
    ...     async for message in subscription:
    ...         print(message)
"""

from __future__ import annotations

from mainstem.aeron.aio.client import Aeron, connect
from mainstem.aeron.aio.poller import Poller
from mainstem.aeron.aio.requests import Request, Requester, Responder
from mainstem.aeron.aio.streams import ExclusivePublication, Publication, Subscription

__all__ = [
    "Aeron",
    "ExclusivePublication",
    "Poller",
    "Publication",
    "Request",
    "Requester",
    "Responder",
    "Subscription",
    "connect",
]
