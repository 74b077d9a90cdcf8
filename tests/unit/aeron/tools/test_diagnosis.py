"""Several samples make up one answer."""

from __future__ import annotations

from tests.unit.aeron.tools.directory import NOW_MS, WINDOW, MadeUpDirectory

from mainstem.aeron.tools.diagnosis import Diagnosis, diagnose
from mainstem.aeron.tools.rules import Cause

FAR = 1 << 20
STEP_MS = 50


def slow(silent_ms: int = 100) -> MadeUpDirectory:
    sent = FAR + WINDOW
    made = MadeUpDirectory().publication(sent + WINDOW, limit=sent + WINDOW, sent=sent, sender_limit=sent)
    made.image(sent).subscriber(FAR).client(age_ms=silent_ms)
    return made


def flowing(position: int) -> MadeUpDirectory:
    made = MadeUpDirectory()
    made.publication(position, limit=position + WINDOW, sent=position, sender_limit=position + WINDOW)
    return made.image(position).subscriber(position)


def publication(samples: list[MadeUpDirectory]) -> Diagnosis:
    found = diagnose([made.sample(i * STEP_MS) for i, made in enumerate(samples)])
    return next(d for d in found if d.kind == "publication")


def test_a_rule_that_applied_in_the_first_sample_may_have_applied_longer() -> None:
    found = publication([slow()] * 4)
    assert (found.since_ms, found.since_basis) == (NOW_MS, "the first sample: it may be longer")
    assert found.not_before_ms == NOW_MS - 60_000
    assert (found.agreeing, found.total) == (4, 4)


def test_a_change_between_samples_is_dated_by_the_first_sample_that_shows_it() -> None:
    found = publication([flowing(FAR), flowing(FAR + 64), flowing(FAR + 128), slow(), slow()])
    assert found.cause is Cause.SLOW_SUBSCRIBER
    assert (found.since_ms, found.since_basis) == (NOW_MS + 3 * STEP_MS, "the first sample that shows it")


def test_a_silent_client_dates_the_stall_by_its_last_heartbeat() -> None:
    found = publication([slow(silent_ms=7000)] * 3)
    assert (found.since_ms, found.since_basis) == (NOW_MS - 7000, "its client's last heartbeat")
    assert "no heartbeat for 7.1 s" in found.sentence


def test_a_stream_stalled_in_a_quarter_of_the_samples_is_stalled() -> None:
    found = publication([flowing(FAR)] + [flowing(FAR + 64 * i) for i in range(1, 7)] + [slow(), slow()])
    assert found.is_stalled
    assert (found.agreeing, found.total) == (2, 8)


def test_a_stream_stalled_less_often_is_not_stalled() -> None:
    found = publication([flowing(FAR)] + [flowing(FAR + 64 * i) for i in range(1, 9)] + [slow()])
    assert found.rule == "flowing"
    assert not found.is_stalled
    assert found.samples == {"flowing": 8, "slow-subscriber": 1}


def test_one_sample_is_enough_for_a_static_cause() -> None:
    assert publication([slow()]).rule == "slow-subscriber"


def test_streams_that_appear_or_disappear_between_samples_are_handled() -> None:
    found = diagnose([MadeUpDirectory().sample(0), slow().sample(50)])
    assert {d.kind for d in found} == {"publication", "image"}
    assert diagnose([slow().sample(0), MadeUpDirectory().sample(50)]) == ()


def test_stats_are_named_after_counters() -> None:
    figures = publication([slow()]).figures
    assert figures["pub_pos"] == figures["pub_lmt"] == FAR + 2 * WINDOW
    assert figures["snd_pos"] == figures["snd_lmt"] == FAR + WINDOW
    assert "receivers" not in figures
