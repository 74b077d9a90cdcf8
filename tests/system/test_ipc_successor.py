"""An IPC subscriber that follows a closed one starts where the closed one ended, so nothing arrives twice."""

from __future__ import annotations

import pytest
from tests.support.waiting import wait_for

import mainstem
from mainstem import MediaDriver

pytestmark = pytest.mark.system


@pytest.mark.parametrize("ends", ["closed", "with its client"])
def test_data_read_before_a_subscriber_ended_is_not_repeated(ends: str) -> None:
    """The driver runs no duty cycle between the last read and the end."""
    with (
        MediaDriver.launch(threading_mode="INVOKER", ipc_term_buffer_length=1 << 16) as driver,
        mainstem.connect(driver.directory, driver_invoker=driver.do_work) as near,
        mainstem.connect(driver.directory, driver_invoker=driver.do_work) as far,
    ):
        first = far.add_subscription("aeron:ipc", 10)
        publication = near.add_publication("aeron:ipc", 10)
        wait_for(lambda: publication.is_connected and first.images, invoke=driver.do_work)
        for message in (b"one", b"two", b"three"):
            publication.offer(message)
        assert first.poll_bytes(2) == [b"one", b"two"]
        if ends == "closed":
            first.close()
        else:
            far.close()
        second = near.add_subscription("aeron:ipc", 10)
        wait_for(lambda: bool(second.images), invoke=driver.do_work)
        assert second.poll_bytes() == [b"three"]
