"""A group of receivers that is not complete: the exception, mainstem pub and mainstem why say how many there are."""

from __future__ import annotations

import pytest
from tests.support.live_driver import wait_for
from tests.support.ports import free_port

from mainstem import Aeron, MediaDriver, NotConnected, cli

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
        for arguments in (["why"], ["pub", channel, "1001", "--size", "8", "--wait", "0.2"]):
            with pytest.raises(SystemExit) as end:
                cli.main([*arguments, "--dir", driver.directory])
            assert end.value.code == (0 if arguments == ["why"] else cli.EXIT_ERROR)
            said = capsys.readouterr()
            assert SENTENCE in said.out + said.err
