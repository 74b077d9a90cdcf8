"""Stand in for the waits of blocking calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._internal.loop_thread import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Ended:
    """What a call releases at its end, and whose ``acquire`` calls ``wait`` with the lock's."""

    def __init__(self, lock: Any, wait: Callable[..., bool]) -> None:
        self.lock = lock
        self.wait = wait

    def acquire(self, **options: Any) -> bool:
        return self.wait(self.lock.acquire, **options)

    def release(self) -> None:
        self.lock.release()


def replace_waits(monkeypatch: pytest.MonkeyPatch, wait: Callable[..., bool]) -> Callable[[], None]:
    """Let ``wait(acquire, **options)`` stand for every wait from now on; return a function that ends this."""
    make = Call.__init__

    def make_waiting(call: Call[Any], *arguments: Any) -> None:
        make(call, *arguments)
        call.ended = Ended(call.ended, wait)  # type: ignore[assignment]

    monkeypatch.setattr(Call, "__init__", make_waiting)
    return lambda: monkeypatch.setattr(Call, "__init__", make)
