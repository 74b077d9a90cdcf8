"""Moving messages from the log into a queue within one C call.

Theory of operation. A signal handler can raise in the polling thread after every call, at the start of every function, and before
every loop iteration, but not inside C. If a poll has returned messages by then and nothing refers to them, they are lost. So a
queue is extended by the poll itself, ``queue.extend(polled(subscription.poll_bytes, limit))``, and messages leave it in statements
that call nothing, such as ``del queue[0]``.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def polled(poll: Callable[[int], list[T]], limit: int) -> Iterator[T]:
    """Return an iterator over polled messages. The polling runs entirely in compiled code."""
    return chain.from_iterable(map(poll, (limit,)))
