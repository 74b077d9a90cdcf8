"""The timeout of a replay covers all of its steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.archive.test_interruptions import connected

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.errors import Timeout


def test_subscribing_and_asking_over_a_response_channel_share_the_timeout() -> None:
    calls, _ = connected()
    now = SimpleNamespace(ns=0)
    calls.clock = SimpleNamespace(monotonic_ns=lambda: now.ns)  # type: ignore[assignment]

    class Adding:
        """A command of the driver, which responds after three seconds."""

        def __init__(self, result: Any) -> None:
            self.due_ns = now.ns + 3 * NS_PER_SECOND
            self.result = lambda: result
            self.cancel = lambda: None

        @property
        def is_done(self) -> bool:
            return now.ns >= self.due_ns

    stream = SimpleNamespace(registration_id=9, is_connected=False)
    calls.conductor = SimpleNamespace(  # type: ignore[assignment]
        add_subscription=lambda *_: Adding(stream),
        add_publication=lambda *_: Adding(stream),
        close_resource=lambda _: None,
    )
    steps = calls.replay(7, "aeron:udp?control-mode=response|control=localhost:8011", 1002, length=1, timeout=5.0)

    def run() -> None:
        for _ in steps:
            now.ns += NS_PER_SECOND // 10

    with pytest.raises(Timeout, match=r"timed out after 5 s waiting for the publication that asks for the replay"):
        run()
    assert now.ns == pytest.approx(5 * NS_PER_SECOND, rel=0.05)
