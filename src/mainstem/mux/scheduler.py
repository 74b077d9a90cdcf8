"""Whose turn it is: streams with something to send take turns of one bounded packet each.

That bound is what keeps a one-byte message from waiting behind a gigabyte: it waits for at most one packet of every other
stream that has something to send, and for what was handed to the transport before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


class Schedulable(Protocol):
    """Something that stands in the queue at most once; ``scheduled`` says whether it does."""

    scheduled: bool


T = TypeVar("T", bound=Schedulable)


class RoundRobin(Generic[T]):
    """Members that wait for a turn, first come first served; both operations cost the same however many there are."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: deque[T] = deque()

    def __bool__(self) -> bool:
        return bool(self.queue)

    def add(self, member: T) -> None:
        """Puts ``member`` at the end, unless it stands in the queue already."""
        if not member.scheduled:
            member.scheduled = True
            self.queue.append(member)

    def run(self, limit: int, out: list[bytes | memoryview], turn: Callable[[T, list[bytes | memoryview]], int]) -> int:
        """Gives turns until ``limit`` bytes are in ``out`` or nobody waits; returns the number of bytes.

        ``turn(member, out)`` appends one packet at most, returns its length, and calls :meth:`add` when there is more.
        """
        size = 0
        queue = self.queue
        while queue and size < limit:
            member = queue.popleft()
            member.scheduled = False
            size += turn(member, out)
        return size
