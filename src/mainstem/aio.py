"""Aeron for asyncio: the same client, whose waiting is the event loop's.

Classes and methods have the names, arguments, results and errors of the blocking ones in ``mainstem``, where they are described in
full. What waits is a coroutine, and ``close`` is one; everything else is the same plain call.

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
from mainstem.aeron.aio.streams import Counter, ExclusivePublication, Image, Publication, Subscription

__all__ = [
    "Aeron",
    "Counter",
    "ExclusivePublication",
    "Image",
    "Poller",
    "Publication",
    "Request",
    "Requester",
    "Responder",
    "Subscription",
    "connect",
]
