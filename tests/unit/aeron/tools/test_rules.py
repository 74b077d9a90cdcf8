"""Every row of the decision table, shown by a directory that it applies to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.aeron.tools.directory import (
    CLIENT,
    IMAGE,
    PUBLICATION,
    SUBSCRIPTION,
    TERM,
    UDP,
    WINDOW,
    MadeUpDirectory,
)

from mainstem.aeron.tools.diagnosis import Diagnosis, diagnose
from mainstem.aeron.tools.rules import IMAGE_RULES, PUBLICATION_RULES, Cause

if TYPE_CHECKING:
    from collections.abc import Callable

IPC = "aeron:ipc"
MDC = "aeron:udp?control=localhost:20122|control-mode=dynamic|fc=min"
FAR = 100 * TERM  # a stream that has run for a while


def held_by_window(consumed: int, **publication: object) -> MadeUpDirectory:
    """Return a publisher at its limit whose sender has sent the whole window beyond ``consumed``."""
    sent = consumed + WINDOW
    return MadeUpDirectory().publication(
        sent + WINDOW,
        limit=sent + WINDOW,
        sent=sent,
        sender_limit=sent,
        **publication,  # type: ignore[arg-type]
    )


def ipc(position: int, limit: int, **log: object) -> MadeUpDirectory:
    return MadeUpDirectory().publication(position, limit=limit, channel=IPC, **log)  # type: ignore[arg-type]


def slow_ipc(**client: object) -> MadeUpDirectory:
    made = ipc(FAR + WINDOW, FAR + WINDOW).subscriber(FAR, of=PUBLICATION, channel=IPC)
    made.client(**client)  # type: ignore[arg-type]
    return made


def slow_reader(**client: object) -> MadeUpDirectory:
    made = held_by_window(FAR).image(FAR + WINDOW).subscriber(FAR)
    made.client(**client)  # type: ignore[arg-type]
    return made


def stopped_claim() -> MadeUpDirectory:
    return MadeUpDirectory().publication(
        FAR + 4096, limit=FAR + WINDOW, sent=FAR, sender_limit=FAR + WINDOW, next_frame_length=-64
    )


def gap(naks: int) -> MadeUpDirectory:
    return held_by_window(FAR).image(FAR, high_water_mark=FAR + WINDOW, naks=naks).subscriber(FAR)


def moving(position: int) -> MadeUpDirectory:
    return MadeUpDirectory().publication(
        position, limit=position + WINDOW, sent=position, sender_limit=position + WINDOW
    )


def flow_limit(**log: object) -> MadeUpDirectory:
    return MadeUpDirectory().publication(
        FAR,
        limit=FAR,
        sent=FAR,
        sender_limit=FAR + WINDOW,
        is_connected=False,
        **log,  # type: ignore[arg-type]
    )


Samples = list[MadeUpDirectory]

PUBLICATION_CASES: dict[str, Callable[[], Samples]] = {
    "driver-gone": lambda: [_with(moving(FAR), heartbeat_age_ms=11_000)],
    "disk-full": lambda: [_with(_sparse(moving(FAR)), free_space=4095)],
    "channel-error": lambda: [
        MadeUpDirectory().publication(0, limit=0, sent=0, sender_limit=0, status=-1, is_connected=False)
    ],
    "ended": lambda: [flow_limit(end_of_stream=FAR)],
    "no-subscriber": lambda: [ipc(FAR, FAR, is_connected=False)],
    "group-incomplete": lambda: [
        MadeUpDirectory().publication(
            0, limit=0, sent=0, sender_limit=0, receivers=1, destinations=1, channel=MDC, is_connected=False
        )
    ],
    "no-receiver": lambda: [flow_limit()],
    "spy": lambda: [
        MadeUpDirectory()
        .publication(FAR + WINDOW, limit=FAR + WINDOW, sent=FAR + WINDOW, sender_limit=FAR + 2 * WINDOW)
        .spy(FAR)
    ],
    "unfinished-claim": lambda: [stopped_claim(), stopped_claim()],
    "loss": lambda: [gap(3), gap(9)],
    "slow-recorder": lambda: [slow_reader(records=True)],
    "slow-subscriber": lambda: [slow_reader()],
    "congestion-window": lambda: [
        MadeUpDirectory()
        .publication(FAR + WINDOW, limit=FAR + WINDOW, sent=FAR + 1408, sender_limit=FAR + 1408)
        .image(FAR, cubic_window=1408)
        .subscriber(FAR)
    ],
    "receiver-window": lambda: [held_by_window(FAR).image(FAR + 64).subscriber(FAR)],
    "late-status-message": lambda: [held_by_window(FAR).image(FAR + WINDOW).subscriber(FAR + WINDOW)],
    "group-window": lambda: [held_by_window(FAR, receivers=3, destinations=3, channel=MDC)],
    "remote-window": lambda: [held_by_window(FAR)],
    "slow-sender": lambda: [
        MadeUpDirectory().publication(FAR + WINDOW, limit=FAR + WINDOW, sent=FAR, sender_limit=FAR + WINDOW)
    ],
    "limit-not-raised": lambda: [
        ipc(FAR + WINDOW, FAR + WINDOW).subscriber(FAR + WINDOW - 64, of=PUBLICATION, channel=IPC)
    ],
    "flowing": lambda: [moving(FAR), moving(FAR + 1024)],
    "idle": lambda: [moving(FAR), moving(FAR)],
}

IMAGE_CASES: dict[str, Callable[[], Samples]] = {
    "driver-gone": lambda: [_with(MadeUpDirectory().image(FAR).subscriber(FAR), heartbeat_age_ms=-1)],
    "disk-full": lambda: [_with(_sparse(MadeUpDirectory().image(FAR).subscriber(FAR)), free_space=0)],
    "image-ended": lambda: [MadeUpDirectory().image(FAR, end_of_stream=FAR).subscriber(FAR - 64)],
    "sender-gone": lambda: [MadeUpDirectory().image(FAR, active_transports=0).subscriber(FAR)],
    "image-loss": lambda: [MadeUpDirectory().image(FAR, high_water_mark=FAR + 64).subscriber(FAR)] * 2,
    "image-slow-recorder": lambda: [_client(MadeUpDirectory().image(FAR + WINDOW).subscriber(FAR), records=True)],
    "image-slow-subscriber": lambda: [MadeUpDirectory().image(FAR + WINDOW).subscriber(FAR)],
    "image-congestion-window": lambda: [
        MadeUpDirectory().image(FAR, high_water_mark=FAR + 4096, cubic_window=4096).subscriber(FAR)
    ],
    "receiving": lambda: [MadeUpDirectory().image(at).subscriber(at) for at in (FAR, FAR + 64)],
    "quiet": lambda: [MadeUpDirectory().image(FAR).subscriber(FAR)] * 2,
}


def _with(made: MadeUpDirectory, **changes: int) -> MadeUpDirectory:
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def _client(made: MadeUpDirectory, **facts: bool) -> MadeUpDirectory:
    made.client(**facts)  # type: ignore[arg-type]
    return made


def _sparse(made: MadeUpDirectory) -> MadeUpDirectory:
    from dataclasses import replace

    made.logs = {own: replace(log, allocated=TERM) for own, log in made.logs.items()}
    return made


def answer(samples: Samples, registration_id: int) -> Diagnosis:
    found = diagnose([made.sample(50 * i) for i, made in enumerate(samples)])
    return next(d for d in found if d.registration_id == registration_id)


@pytest.mark.parametrize("rule", PUBLICATION_RULES, ids=lambda r: r.name)
def test_each_row_for_publications_applies_to_its_case(rule: object) -> None:
    name, cause = rule.name, rule.cause  # type: ignore[attr-defined]
    found = answer(PUBLICATION_CASES[name](), PUBLICATION)
    assert (found.rule, found.cause) == (name, cause)
    assert found.sentence


@pytest.mark.parametrize("rule", IMAGE_RULES, ids=lambda r: r.name)
def test_each_row_for_images_applies_to_its_case(rule: object) -> None:
    name, cause = rule.name, rule.cause  # type: ignore[attr-defined]
    found = answer(IMAGE_CASES[name](), IMAGE)
    assert (found.rule, found.cause) == (name, cause)
    assert found.sentence


def test_an_ipc_subscriber_is_named_with_its_client() -> None:
    found = answer([slow_ipc(name="orders")], PUBLICATION)
    assert found.cause is Cause.SLOW_SUBSCRIBER
    assert f"subscription {SUBSCRIPTION} of client {CLIENT} (orders)" in found.sentence
    assert f"{WINDOW:,} bytes unread" in found.sentence


def test_an_ipc_recorder_is_distinguished_from_other_subscribers() -> None:
    assert answer([slow_ipc(records=True)], PUBLICATION).rule == "slow-recorder"


def test_an_untethered_subscriber_that_fell_behind_is_not_the_cause() -> None:
    made = ipc(FAR + 64, FAR + 64 + WINDOW).subscriber(FAR + 64, of=PUBLICATION, channel=IPC)
    made.subscriber(FAR - WINDOW, of=PUBLICATION, channel=IPC, registration_id=31)
    found = answer([made, made], PUBLICATION)
    assert found.rule == "idle"
    assert "subscription 31 fell behind" in found.sentence


def test_the_local_receiver_is_not_the_cause_if_a_remote_one_is_slower() -> None:
    made = held_by_window(FAR, receivers=2, destinations=2, channel=MDC)
    made.image(FAR + WINDOW, channel=MDC).subscriber(FAR + WINDOW)
    found = answer([made], PUBLICATION)
    assert found.rule == "group-window"
    assert f"not the image here: {IMAGE} at" in found.sentence


def test_a_padding_frame_longer_than_a_datagram_does_not_count_as_out_of_window() -> None:
    made = MadeUpDirectory().publication(
        FAR + WINDOW, limit=FAR + WINDOW, sent=FAR, sender_limit=FAR + 2048, next_frame_length=20_000
    )
    assert answer([made], PUBLICATION).rule == "slow-sender"


def test_spies_on_an_unconnected_stream_are_mentioned() -> None:
    assert "1 spy listens: none counts without ssc=true" in answer([flow_limit().spy(FAR)], PUBLICATION).sentence


def test_the_documentation_matches_the_table() -> None:
    page = (Path(__file__).parents[4] / "docs" / "why.md").read_text()
    at = 0
    for rule in (*PUBLICATION_RULES, *IMAGE_RULES):
        row = f"| `{rule.name}` | `{rule.cause}` | {rule.when} |"
        at = page.find(row, at)
        assert at >= 0, f"not in docs/why.md, or out of order: {row}"


def test_only_the_endpoint_decides_whether_a_channel_is_multicast() -> None:
    from mainstem.aeron.tools.stream_state import is_multicast

    assert is_multicast("aeron:udp?interface=localhost|endpoint=224.0.1.1:40456")
    assert is_multicast("aeron:udp?endpoint=[ff05::1]:40456")
    assert not is_multicast(UDP)
    assert not is_multicast("aeron:ipc")


def test_a_limited_publisher_without_unread_data_waits_for_the_driver() -> None:
    made = ipc(FAR + WINDOW, FAR + WINDOW).subscriber(FAR + WINDOW, of=PUBLICATION, channel=IPC)
    (found,) = diagnose([made.sample()])
    assert (found.rule, found.cause) == ("limit-not-raised", Cause.DRIVER)


def test_spies_that_are_alone_hold_a_stream_where_the_sender_is() -> None:
    for sent, limit in ((0, 0), (FAR, FAR - 64)):
        made = MadeUpDirectory().publication(
            sent + WINDOW,
            limit=sent + WINDOW,
            sent=sent,
            sender_limit=limit,
            spies_simulate_connection=True,
        )
        (found,) = diagnose([made.spy(sent).sample()])
        assert (found.rule, found.cause) == ("spy", Cause.SPY)
