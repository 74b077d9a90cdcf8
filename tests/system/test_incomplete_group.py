"""A group of receivers that is incomplete or empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.live_driver import wait_for
from tests.support.ports import free_port

from mainstem import Aeron, MediaDriver, NotConnected, cli

if TYPE_CHECKING:
    from mainstem import Publication, Subscription

pytestmark = pytest.mark.system

SENTENCE = "its group has 1 of 3 receivers, where all subscriptions on one driver are one receiver"


def test_three_subscriptions_on_one_driver_are_one_receiver_of_three(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    control = f"control=127.0.0.1:{port}|control-mode=dynamic"
    channel = f"aeron:udp?{control}|fc=min,g:/3"
    with MediaDriver.launch(threads=True, threading_mode="SHARED") as driver, Aeron.connect(driver.directory) as aeron:
        for _ in range(3):
            aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port + 1}|{control}", 1001)
        publication = aeron.add_publication(channel, 1001)
        error = NotConnected("")

        def has_one_receiver() -> bool:
            nonlocal error
            with pytest.raises(NotConnected) as caught:
                publication.send(b"tide", timeout=0.05)
            error = caught.value
            return error.receivers == 1

        wait_for(has_one_receiver)
        assert SENTENCE in str(error)
        assert error.group_size == 3
        for arguments in (["why"], ["pub", channel, "1001", "--size", "8", "--timeout", "0.2"]):
            with pytest.raises(SystemExit) as end:
                cli.main([*arguments, "--dir", driver.directory])
            assert end.value.code == (0 if arguments == ["why"] else cli.EXIT_ERROR)
            said = capsys.readouterr()
            assert SENTENCE in said.out + said.err


# Several windows of the smallest term.
COUNT, LENGTH = 2000, 200


def carry(publication: Publication, subscriptions: list[Subscription]) -> None:
    """Send ``COUNT`` messages and wait until each subscription has received all of them."""
    received = [0] * len(subscriptions)
    sent = 0

    def is_done() -> bool:
        nonlocal sent
        while sent < COUNT and publication.offer(bytes(LENGTH)) > 0:
            sent += 1
        for number, subscription in enumerate(subscriptions):
            received[number] += len(subscription.poll_bytes())
        return received == [COUNT] * len(subscriptions)

    wait_for(is_done, progress=lambda: (sent, *received))


@pytest.mark.parametrize(("flow_control", "member"), [("fc=tagged,g:5", "gtag=5"), ("fc=min", "gtag=5")])
def test_a_group_without_members_and_without_a_required_size_sends_to_everyone(flow_control: str, member: str) -> None:
    control = f"control=127.0.0.1:{free_port()}|control-mode=dynamic"
    with MediaDriver.launch(threads=True, threading_mode="SHARED") as driver, Aeron.connect(driver.directory) as aeron:
        publication = aeron.add_publication(f"aeron:udp?{control}|{flow_control}|term-length=64k", 1001)
        others = aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:0|{control}", 1001)
        wait_for(lambda: publication.is_connected and others.is_connected)
        carry(publication, [others])
        with aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:0|{control}|{member}", 1001) as members:
            wait_for(lambda: members.is_connected)
            carry(publication, [others, members])
        carry(publication, [others])
