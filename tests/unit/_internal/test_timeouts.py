"""Timeouts of the helpers that every family shares: infinity means no timeout, and NaN is refused."""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any

import pytest

from mainstem._internal import eyeballs
from mainstem._internal.clock import SYSTEM_CLOCK, Deadline, timeout_of
from mainstem._internal.tasks import within


@pytest.mark.parametrize("forever", [None, math.inf, 1e300])
def test_infinity_means_no_limit(forever: float | None) -> None:
    assert timeout_of(forever) is None
    assert Deadline(SYSTEM_CLOCK, forever).left is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        async def run() -> str:
            (await eyeballs.connect_socket("127.0.0.1", port, timeout=forever)).close()
            return await within(forever, asyncio.sleep(0.01, "done"))

        assert asyncio.run(run()) == "done"


def test_a_number_is_a_limit() -> None:
    assert timeout_of(0.5) == 0.5
    with pytest.raises(TimeoutError):
        asyncio.run(within(0.01, asyncio.sleep(60)))


def test_nan_is_refused_before_anything_begins() -> None:
    begun: list[Any] = []

    async def work() -> None:
        begun.append(1)

    for call in (
        lambda: timeout_of(math.nan),
        lambda: Deadline(SYSTEM_CLOCK, math.nan),
        lambda: asyncio.run(eyeballs.connect_socket("127.0.0.1", 1, timeout=math.nan)),
        lambda: asyncio.run(within(math.nan, work())),
    ):
        with pytest.raises(ValueError, match="NaN is not a number of seconds"):
            call()
    assert not begun
