"""Which clients count as one address, and the rate limit of its requests."""

from __future__ import annotations

import pytest

from mainstem._internal.address_prefixes import AddressPrefixes, address_of
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.admission import RateLimit
from mainstem.errors import ConfigurationError


@pytest.mark.parametrize(
    ("identity", "address"),
    [
        ("192.0.2.7:1234", "192.0.2.7"),
        ("[2001:db8::1]:1234", "2001:db8::1"),
        ("[fe80::1%eth0]:1", "fe80::1"),
        ("aeron:ipc", "aeron:ipc"),
    ],
)
def test_finds_the_address_in_a_source_identity(identity: str, address: str) -> None:
    assert address_of(identity) == address


def test_ipv4_addresses_count_singly_and_ipv6_addresses_by_network() -> None:
    prefixes = AddressPrefixes()
    assert prefixes.prefix_of("192.0.2.7") == "192.0.2.7/32"
    assert prefixes.prefix_of("192.0.2.8") != prefixes.prefix_of("192.0.2.7")
    assert prefixes.prefix_of("2001:db8:1:2:3::4") == prefixes.prefix_of("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert prefixes.prefix_of("2001:db8:1:3::4") != prefixes.prefix_of("2001:db8:1:2::4")
    assert prefixes.prefix_of("::ffff:192.0.2.7") == "192.0.2.7/32"
    assert AddressPrefixes(ipv6=48).prefix_of("2001:db8:1:3::4") == "2001:db8:1::/48"
    assert AddressPrefixes(ipv4=24).prefix_of("192.0.2.7") == "192.0.2.0/24"
    with pytest.raises(ConfigurationError):
        AddressPrefixes(ipv6=129)


def test_a_rate_limit_allows_a_burst_and_then_its_rate() -> None:
    rate = RateLimit(10, 3)
    assert [rate.take("a", 0) for _ in range(4)] == [True, True, True, False]
    assert rate.take("b", 0)
    assert not rate.take("a", NS_PER_SECOND // 10 - 1)
    assert rate.take("a", NS_PER_SECOND // 10)
    assert [rate.take("a", 10 * NS_PER_SECOND) for _ in range(4)] == [True, True, True, False]


def test_a_flood_from_many_addresses_does_not_grow_the_table() -> None:
    rate = RateLimit(1, 1, max_prefixes=100)
    for number in range(10_000):
        assert rate.take(number, number)
    assert len(rate) == 100
