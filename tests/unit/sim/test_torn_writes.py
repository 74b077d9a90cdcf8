"""A publisher that dies between two stores: the stream continues once the driver has unblocked it."""

from __future__ import annotations

from random import Random

import pytest

from mainstem._core import layout
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.sim.scenarios.storm import STEPS, leave_half
from mainstem.sim.world import World


class Always(Random):
    """Always draws the same step."""

    step = ""

    def choice(self, options):
        return self.step if self.step in options else super().choice(options)


@pytest.mark.parametrize("step", STEPS)
def test_the_log_holds_what_the_appender_had_stored_and_the_next_message_arrives(step: str) -> None:
    with World(1) as world:
        host = world.add_host(
            "one",
            client_liveness_timeout_ns=NS_PER_SECOND,
            publication_unblock_timeout_ns=2 * NS_PER_SECOND,
            timer_interval_ns=NS_PER_SECOND // 2,
        )
        subscription = host.aeron.add_subscription("aeron:ipc", 1001)
        publication = host.aeron.add_publication("aeron:ipc?term-length=64k", 1001)
        world.run_until(lambda: publication.is_connected, what="the connection")
        publication.offer(b"before")
        start = publication.position
        rng = Always(1)
        rng.step = step
        assert leave_half(publication, rng) == step
        header = publication._log.get_bytes(start, layout.DATA_HEADER_LENGTH)
        assert publication.position > start
        assert int.from_bytes(header[:4], "little", signed=True) < 0 or step == "tail"
        assert (header == bytes(layout.DATA_HEADER_LENGTH)) == (step == "tail")
        assert (header[4:] == bytes(layout.DATA_HEADER_LENGTH - 4)) == (step in ("tail", "length"))
        assert publication.offer(b"after") > 0
        received: list[bytes] = []

        def is_read() -> bool:
            subscription.poll_messages(lambda fragment: received.append(bytes(fragment)), 10)
            return len(received) == 2

        world.run_until(is_read, what="the message behind", within_ns=10 * NS_PER_SECOND)
        assert received == [b"before", b"after"]
