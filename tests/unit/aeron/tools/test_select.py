"""Choosing counters."""

from __future__ import annotations

import re
from dataclasses import replace

from tests.unit.aeron.tools.directory import SESSION, STREAM, UDP, MadeUpDirectory

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.driver.counters import system_counter
from mainstem.aeron.tools.select import Selection, counter_rates, counter_row, type_name


def made() -> MadeUpDirectory:
    directory = MadeUpDirectory().publication(96, limit=128, sent=64, sender_limit=96).image(32).subscriber(0)
    directory.client(name="orders")
    directory.add(system_counter(SystemCounter.BYTES_SENT), 5)
    return directory


def chosen(selection: Selection) -> set[str]:
    return {type_name(c) for c in made().counters if selection.matches(c)}


def test_types_are_named_as_their_labels_name_them() -> None:
    stream = {"pub-lmt", "pub-pos", "snd-pos", "snd-lmt", "rcv-hwm", "rcv-pos", "rcv-naks-sent", "sub-pos"}
    assert chosen(Selection()) == stream | {"snd-channel", "client-heartbeat", "system"}


def test_types_are_chosen_by_name_or_number() -> None:
    assert chosen(Selection(types=frozenset({"snd-pos", "4"}))) == {"snd-pos", "sub-pos"}


def test_streams_are_chosen_by_session_stream_and_channel() -> None:
    assert "client-heartbeat" not in chosen(Selection(session_id=SESSION))
    assert len(chosen(Selection(stream_id=STREAM))) == 8
    assert chosen(Selection(stream_id=STREAM + 1)) == set()
    assert "snd-channel" in chosen(Selection(channel="localhost:20121"))
    assert chosen(Selection(channel="localhost:1")) == set()


def test_labels_are_chosen_by_expression_and_zeros_left_out() -> None:
    assert chosen(Selection(label=re.compile("name=ord"))) == {"client-heartbeat"}
    assert "sub-pos" not in chosen(Selection(hide_zero=True))


def test_json_has_the_documented_keys() -> None:
    (row,) = [counter_row(c) for c in made().counters if type_name(c) == "snd-lmt"]
    assert (row["session_id"], row["stream_id"], row["channel"], row["value"]) == (SESSION, STREAM, UDP, 96)


def test_rates_are_of_counters_that_rose_since_the_previous_sample() -> None:
    first = made().sample(0)
    second = made()
    second.counters = [replace(c, value=c.value + 500) if type_name(c) == "snd-pos" else c for c in second.counters]
    now = second.sample(2000)
    found = counter_rates(first, now, now.counters)
    assert list(found.values()) == [250.0]
    assert counter_rates(None, now, now.counters) == {}
