"""A sender pads a term past its limit, and the receiver misses the end of that term."""

from __future__ import annotations

import pytest
from tests.support.padded_stream import carry_padded_stream
from tests.support.ports import free_port

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

pytestmark = pytest.mark.system


def test_a_loss_before_padding_that_leads_past_the_limit_is_repaired() -> None:
    port = free_port()
    with (
        MediaDriver.launch() as near,
        MediaDriver.launch() as far,
        Aeron.connect(near.directory) as sender,
        Aeron.connect(far.directory) as receiver,
    ):
        carry_padded_stream(sender, receiver, port)
