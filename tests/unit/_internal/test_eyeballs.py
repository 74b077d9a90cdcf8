"""Of several attempts to connect, one result is returned, and every other is disposed of."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from mainstem._internal.eyeballs import race

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._internal.eyeballs import HostAddress

ADDRESSES: list[HostAddress] = [(socket.AF_INET, (f"127.0.0.{number}", 1)) for number in (1, 2)]


@pytest.mark.parametrize("turns", range(8))
async def test_a_result_is_disposed_of_if_the_caller_is_cancelled_while_other_attempts_end(turns: int) -> None:
    made: list[int] = []
    discarded: list[int] = []

    async def attempt(address: HostAddress, doubt: Callable[[], None]) -> int:
        doubt()
        if address == ADDRESSES[0]:
            try:
                await asyncio.Event().wait()
            finally:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.001)  # it takes a moment to end
        made.append(1)
        return 1

    racing = asyncio.ensure_future(race(ADDRESSES, attempt, discard=discarded.append, timeout=None, delay=0.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    racing.cancel()
    returned = await asyncio.gather(racing, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert len(discarded) + (returned == [1]) == len(made)
