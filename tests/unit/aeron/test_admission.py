"""Admission of streams: networks, prefixes, rates, terms."""

from __future__ import annotations

import pytest

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.admission import RateLimit, SourceFilter, networks
from mainstem.errors import ConfigurationError


def test_an_address_must_be_allowed_and_not_denied() -> None:
    chosen = SourceFilter(allow=["192.0.2.0/24", "2001:db8::/32"], deny=["192.0.2.66"])
    assert chosen.admits("192.0.2.7")
    assert chosen.admits("::ffff:192.0.2.7")
    assert chosen.admits("2001:db8::1")
    assert not chosen.admits("192.0.2.66")
    assert not chosen.admits("::ffff:192.0.2.66")
    assert not chosen.admits("198.51.100.1")
    assert not chosen.admits("nonsense")
    assert SourceFilter(deny=["10.0.0.0/8"]).admits("192.0.2.7")


def test_new_streams_of_one_prefix_are_limited_by_their_rate() -> None:
    chosen = SourceFilter(rate=1, burst=2)

    def begins(address: str, now_ns: int) -> bool:
        return chosen.admits_stream(address, term_length=65536, now_ns=now_ns)

    assert [begins("2001:db8::1", 0), begins("2001:db8::2", 0), begins("2001:db8::3", 0)] == [True, True, False]
    assert begins("2001:db8:0:1::1", 0)
    assert begins("192.0.2.7", 0)
    assert begins("2001:db8::3", NS_PER_SECOND)


def test_the_total_is_limited_and_a_flooder_does_not_exhaust_it() -> None:
    chosen = SourceFilter(rate=1, burst=1, total_rate=1, total_burst=2)
    for _ in range(100):
        chosen.admits_stream("192.0.2.66", term_length=65536, now_ns=0)
    assert chosen.admits_stream("192.0.2.7", term_length=65536, now_ns=0)
    assert not chosen.admits_stream("192.0.2.8", term_length=65536, now_ns=0)


def test_a_stream_that_the_total_refuses_leaves_its_address_the_rate() -> None:
    chosen = SourceFilter(rate=1, burst=1, total_rate=10, total_burst=1)
    assert chosen.admits_stream("192.0.2.1", term_length=65536, now_ns=0)
    assert not chosen.admits_stream("192.0.2.2", term_length=65536, now_ns=0)
    assert chosen.admits_stream("192.0.2.2", term_length=65536, now_ns=NS_PER_SECOND // 10)


def test_a_stream_with_too_long_a_term_is_refused() -> None:
    chosen = SourceFilter(max_term_length=1 << 20)
    assert chosen.admits_stream("192.0.2.7", term_length=1 << 20, now_ns=0)
    assert not chosen.admits_stream("192.0.2.7", term_length=1 << 21, now_ns=0)


def test_a_text_that_names_no_network_is_refused() -> None:
    assert networks(" 192.0.2.0/24, 2001:db8::1 ") == ["192.0.2.0/24", "2001:db8::1"]
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.0/33"):
        networks("192.0.2.0/33")


def test_a_token_that_is_given_back_can_be_taken_again() -> None:
    limit = RateLimit(1.0, 2)
    assert [limit.take("a", 0) for _ in range(3)] == [True, True, False]
    limit.give_back("a")
    limit.give_back("unknown")
    assert [limit.take("a", 0) for _ in range(2)] == [True, False]
