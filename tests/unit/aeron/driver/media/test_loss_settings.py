"""Deliberate loss: the generators that settings create, and refused settings."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.support.invoked_driver import small_settings

from mainstem._core import layout
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.driver.media.loss_settings import incoming_loss, outgoing_loss
from mainstem.errors import ConfigurationError


def frame(offset: int, *, term_id: int = 5, kind: int = layout.TYPE_DATA, length: int = 64) -> AtomicBuffer:
    head = struct.pack("<iBBHiiiiq", length, 0, 0xC0, kind, offset, 7, 1001, term_id, 0)
    return AtomicBuffer(bytearray(head + bytes(length - len(head))))


def factory(interceptors: str, **arguments: str) -> Any:
    names = {f"udp_channel_transport_bindings_{name}_args": value for name, value in arguments.items()}
    settings = small_settings(
        udp_channel_incoming_interceptors=interceptors, udp_channel_outgoing_interceptors=interceptors, **names
    )
    incoming, outgoing = incoming_loss(settings), outgoing_loss(settings)
    assert (incoming is None) == (outgoing is None)
    return incoming


def test_without_interceptors_nothing_is_lost() -> None:
    assert factory("") is None
    assert factory(" , ") is None


def test_a_fixed_loss_drops_its_range_of_one_term_once() -> None:
    make = factory("fixed-loss", fixed_loss="term-id=5|term-offset=128|length=64")
    generator = make(0)
    assert [generator.asks(frame(offset)) for offset in (0, 64, 128, 192)] == [False, False, True, False]
    assert not generator.asks(frame(128)), "the repair arrives"
    assert not make(1).asks(frame(128, term_id=6))
    assert make(1).asks(frame(128)), "every transport drops its own"


def test_a_multi_gap_loss_drops_each_of_its_gaps() -> None:
    make = factory("multi-gap-loss", multi_gap_loss="term-id=5|gap-radix=256|gap-length=64|total-gaps=2")
    generator = make(0)
    dropped = [offset for offset in range(0, 1024, 64) if generator.asks(frame(offset))]
    assert dropped == [256, 512]


def test_transports_lose_other_datagrams_and_every_run_the_same() -> None:
    make = factory("loss", loss="rate=0.5|seed=11|recv-msg-mask=0x2")

    def losses(number: int) -> list[bool]:
        generator = make(number)
        return [generator.asks(frame(64 * index)) for index in range(64)]

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)
    assert 16 < sum(losses(0)) < 48
    # The mask covers only data frames.
    assert not any(make(0).asks(frame(0, kind=layout.TYPE_SM)) for _ in range(64))


def test_interceptors_follow_one_another() -> None:
    generator = factory("loss,fixed-loss", fixed_loss="term-id=5|term-offset=0|length=64")(0)
    assert generator.asks(frame(0)), "a rate of 0 drops nothing, and the next one is asked"
    assert not generator.asks(frame(64))


@pytest.mark.parametrize(
    ("setting", "make", "lost"),
    [
        ("debug_send_data_loss", outgoing_loss, layout.TYPE_DATA),
        ("debug_receive_data_loss", incoming_loss, layout.TYPE_DATA),
        ("debug_send_control_loss", incoming_loss, layout.TYPE_SM),
        ("debug_receive_control_loss", outgoing_loss, layout.TYPE_SM),
    ],
)
def test_the_debug_settings_lose_data_or_control_frames_of_one_direction(setting: str, make: Any, lost: int) -> None:
    settings = small_settings(**{f"{setting}_rate": 0.5, f"{setting}_seed": 7})
    other = incoming_loss if make is outgoing_loss else outgoing_loss
    assert other(settings) is None
    kept = layout.TYPE_SM if lost == layout.TYPE_DATA else layout.TYPE_DATA
    generator = make(settings)(0)
    assert 16 < sum(generator.asks(frame(0, kind=lost)) for _ in range(64)) < 48
    assert not any(generator.asks(frame(0, kind=kept)) for _ in range(64))


@pytest.mark.parametrize(
    ("interceptors", "arguments", "reason"),
    [
        ("lose", {}, "lose: unknown interceptor; choose loss, fixed-loss or multi-gap-loss"),
        ("loss", {"loss": "rate=2"}, "loss: rate: 2.0 is not between 0 and 1"),
        ("loss", {"loss": "rate=much"}, "loss: could not convert"),
        ("loss", {"loss": "odds=0.5"}, "loss: 'odds=0.5' must be KEY=VALUE with one of the keys rate"),
        ("loss", {"loss": "rate"}, "loss: 'rate' must be KEY=VALUE"),
        ("fixed-loss", {"fixed_loss": "term-id=5"}, "fixed-loss: missing length, term-offset"),
        (
            "multi-gap-loss",
            {"multi_gap_loss": ""},
            "multi-gap-loss: missing gap-length, gap-radix, term-id, total-gaps",
        ),
    ],
)
def test_an_unusable_setting_is_refused(interceptors: str, arguments: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        factory(interceptors, **arguments)


@pytest.mark.parametrize(
    ("interceptors", "arguments"),
    [
        ("loss", {"loss": "rate=0.1|seed=x"}),
        ("fixed-loss", {"fixed_loss": "term-id=x|term-offset=0|length=64"}),
        ("fixed-loss", {"fixed_loss": "term-id=5|term-offset=0|length=0"}),
        ("multi-gap-loss", {"multi_gap_loss": "term-id=5|gap-radix=32|gap-length=64|total-gaps=2"}),
    ],
)
def test_an_invalid_number_or_an_empty_gap_is_refused_by_name(interceptors: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=interceptors):
        factory(interceptors, **arguments)
