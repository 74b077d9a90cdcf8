"""Messages moved from the log into a queue within one C call.

Theory of operation. A signal handler may raise in the polling thread: after every call, at the start of every function, and before
every loop iteration, but not inside C. Messages that a poll has returned by then and that nothing refers to would be lost. So a
queue polls while it is extended, ``queue.extend(polled(subscription.poll_bytes, limit))``, and messages leave it in statements
that call nothing, such as ``del queue[0]``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def polled(poll: Callable[[int], list[T]], limit: int) -> Iterator[T]:
    """Iterate over messages; the polling is all compiled."""
    return chain.from_iterable(map(poll, (limit,)))
