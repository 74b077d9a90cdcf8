"""Signal handlers that raise while a subscription is iterated: each message is yielded once, whenever the exception comes."""
# ruff: noqa: B023 - every function is called in the turn of the loop that defines it

from __future__ import annotations

from typing import Any

import pytest
from tests.support.interruptions import interruptions
from tests.support.waiting import STALL_S

import mainstem


@pytest.fixture
def aeron() -> Any:
    with (
        mainstem.MediaDriver.launch(threads=True, ipc_term_buffer_length=1 << 16) as driver,
        mainstem.Aeron.connect(driver.directory) as client,
    ):
        yield client


@pytest.mark.parametrize("begins_with_metadata", [False, True])
@pytest.mark.parametrize("reads_through_poller", [False, True])
def test_an_interrupted_iteration_continues_with_the_next_message(
    aeron: mainstem.Aeron, begins_with_metadata: bool, reads_through_poller: bool
) -> None:
    subscription = aeron.add_subscription("aeron:ipc", 1001)
    publication = aeron.add_exclusive_publication("aeron:ipc", 1001)
    publication.send(b"first", timeout=STALL_S)
    assert next(subscription.messages(timeout=STALL_S)) == b"first"
    poller = mainstem.Poller([subscription])
    for number, interruption in enumerate(interruptions("mainstem.aeron.client")):
        sent = [b"%d: %d" % (number, each) for each in range(4)]
        for message in sent:
            publication.send(message, timeout=STALL_S)
        received: list[bytes] = []
        begun: list[Any] = []

        def first(received: list[bytes] = received, begun: list[Any] = begun) -> None:
            # Leave messages for `rest`, which iterates without metadata. This iteration can have metadata.
            begun.append(subscription.messages(timeout=STALL_S, metadata=begins_with_metadata))
            for message in begun[-1]:
                received.append(message.payload if begins_with_metadata else message)
                return

        def rest(received: list[bytes] = received, begun: list[Any] = begun) -> None:
            if reads_through_poller:
                begun.append(poller.messages(timeout=STALL_S))
                for _subscription, message in begun[-1]:
                    received.append(message)
                    if len(received) == len(sent):
                        return
            else:
                begun.append(subscription.messages(timeout=STALL_S))
                for message in begun[-1]:
                    received.append(message)
                    if len(received) == len(sent):
                        return

        interruption.during(first)
        while len(received) < len(sent):
            interruption.during(rest)
        assert received == sent
    assert subscription.poll_bytes() == []


def test_an_interrupted_receive_takes_no_message(aeron: mainstem.Aeron) -> None:
    subscription = aeron.add_subscription("aeron:ipc", 1001)
    publication = aeron.add_exclusive_publication("aeron:ipc", 1001)
    for number, interruption in enumerate(interruptions("mainstem.aeron.client")):
        sent = [b"%d: %d" % (number, each) for each in range(3)]
        for message in sent:
            publication.send(message, timeout=STALL_S)
        received: list[bytes] = []
        while len(received) < len(sent):
            interruption.during(lambda: received.append(subscription.receive(timeout=STALL_S)))
        assert received == sent
