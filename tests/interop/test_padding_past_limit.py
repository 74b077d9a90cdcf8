"""Padding past the sender's limit with the reference at one end; between two reference drivers, such a stream is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.padded_stream import carry_padded_stream

import mainstem

if TYPE_CHECKING:
    from tests.interop.conftest import DriverFactory

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(("near", "far"), [("reference", "mainstem"), ("mainstem", "reference")])
def test_a_loss_before_padding_that_leads_past_the_limit_is_repaired(
    start_driver: DriverFactory, port: int, near: str, far: str
) -> None:
    sender_driver, receiver_driver = start_driver(near), start_driver(far)
    with (
        mainstem.Aeron.connect(sender_driver.directory) as sender,
        mainstem.Aeron.connect(receiver_driver.directory) as receiver,
    ):
        carry_padded_stream(sender, receiver, port)
