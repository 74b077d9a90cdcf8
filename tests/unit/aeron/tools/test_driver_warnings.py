"""Warnings about the whole driver."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.aeron.tools.directory import NOW_MS, SUBSCRIPTION, TERM, UDP, MadeUpDirectory

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron import counters as names
from mainstem.aeron.driver.counters import system_counter
from mainstem.aeron.error_log import ErrorObservation
from mainstem.aeron.tools.driver_warnings import driver_warnings


def test_a_quiet_driver_gives_no_warnings() -> None:
    made = MadeUpDirectory().image(0).subscriber(0)
    assert driver_warnings([made.sample(0), made.sample(50)]) == ()


def test_a_dead_driver_is_a_warning() -> None:
    assert "has shut down" in driver_warnings([MadeUpDirectory(heartbeat_age_ms=-1).sample()])[0]
    assert "last heartbeat 12.0 s ago" in driver_warnings([MadeUpDirectory(heartbeat_age_ms=12_000).sample()])[0]


def test_a_log_refused_for_lack_of_space_is_a_disk_warning() -> None:
    error = ErrorObservation(
        observation_count=3,
        first_observation_ms=NOW_MS - 9_000,
        last_observation_ms=NOW_MS - 4_000,
        text="insufficient usable storage for new log of length=50335744",
    )
    (note,) = driver_warnings([MadeUpDirectory().sample()], [error])
    assert note.startswith("disk: a log was refused for lack of space 3 times, last 4 s ago")


def test_logs_that_may_outgrow_their_file_system_cause_a_warning() -> None:
    made = MadeUpDirectory(free_space=2 * TERM).publication(0, limit=64, sent=0, sender_limit=64)
    made.logs = {own: replace(log, allocated=0) for own, log in made.logs.items()}
    (note,) = driver_warnings([made.sample()])
    assert note.startswith(f"disk: the logs may still need {3 * TERM + 4096:,} bytes")


def test_a_subscription_without_a_sender_is_a_warning() -> None:
    made = MadeUpDirectory()
    made.add(names.receive_channel_status(UDP, "127.0.0.1:20121"), 1, SUBSCRIPTION)
    (note,) = driver_warnings([made.sample()])
    assert note.startswith(f"no publication sends to {UDP}")
    assert driver_warnings([made.image(0).subscriber(0).sample()]) == ()


def test_a_channel_that_outlives_its_subscription_causes_no_warning() -> None:
    """Another subscription has the image. A channel that is closing is open for no one."""
    made = MadeUpDirectory()
    made.add(names.receive_channel_status(UDP, "127.0.0.1:20121"), 1, SUBSCRIPTION + 1000)
    assert driver_warnings([made.image(0).subscriber(0).sample()]) == ()
    made = MadeUpDirectory()
    made.add(names.receive_channel_status(UDP, "127.0.0.1:20121"), 2, SUBSCRIPTION)
    assert driver_warnings([made.sample()]) == ()


def test_a_channel_in_error_points_to_the_errors() -> None:
    made = MadeUpDirectory()
    made.add(names.receive_channel_status(UDP, ""), -1, SUBSCRIPTION)
    assert "mainstem errors" in driver_warnings([made.sample()])[0]


def test_a_counter_that_rose_between_samples_is_a_warning() -> None:
    first, second = MadeUpDirectory(), MadeUpDirectory()
    for made, value in ((first, 5), (second, 9)):
        made.add(system_counter(SystemCounter.SHORT_SENDS), value)
        made.counters[0] = replace(made.counters[0], counter_id=int(SystemCounter.SHORT_SENDS))
    (note,) = driver_warnings([first.sample(0), second.sample(50)])
    assert note.startswith("4 times the operating system accepted less")
