"""Messages that come from the log into a queue within one call of C.

Theory of operation. A signal handler may raise in the thread that polls: after every call, at the start of every function, and
before every iteration of a loop, but not inside C. Messages that a poll has returned by then, and that nobody holds, are lost. So a
queue polls while it is extended: ``queue.extend(polled(subscription.poll_bytes, limit))``. An exception comes before or after it.

A message leaves its queue in statements that call nothing, such as ``del queue[0]``, between which no handler runs either.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def polled(poll: Callable[[int], list[T]], limit: int) -> Iterator[T]:
    """Return an iterator that polls when it is consumed; all of it is C."""
    return chain.from_iterable(map(poll, (limit,)))
