"""Aeron for asyncio: the same client, which waits on the event loop.

Classes and methods have the same names, arguments, results and errors as the blocking ones in ``mainstem``, whose documentation
describes them in full. Methods that wait, including ``close``, are coroutines; all other methods are plain calls, as in
``mainstem``. Classes that never wait, such as ``OfferStatus`` and the errors, are the same objects as in ``mainstem``.

Example:
    >>> async with mainstem.aio.connect() as aeron:
    ...     async with aeron.add_subscription("aeron:ipc", 1001) as subscription:
    ...         async for message in subscription:
    ...             print(message)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem import _shared_names
from mainstem._internal.lazy import lazy_names
from mainstem.aeron.aio.client import Aeron, connect
from mainstem.aeron.aio.poller import Poller
from mainstem.aeron.aio.requests import Request, Requester, Responder
from mainstem.aeron.aio.streams import Counter, ExclusivePublication, Image, Publication, Subscription

if TYPE_CHECKING:
    from mainstem._shared_names import *  # noqa: F403

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
__all__ += _shared_names.__all__

__getattr__, __dir__ = lazy_names(__name__, _shared_names.HOMES)
