"""Settings of a duologue that cannot be used are refused by name, and channels follow from the others."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.duologue.settings import ClientSettings, ServerSettings
from mainstem.errors import ConfigurationError


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"initial_port": 0}, "initial_port 0 is not a port"),
        ({"initial_control_port": 65536}, "initial_control_port 65536 is not a port"),
        ({"mtu": 1185}, "mtu 1185 is not a multiple of 32"),
        ({"mtu": 32}, "mtu 32 is not"),
        ({"address": "example.test"}, "'example.test' is not an address"),
        ({"max_clients": 0}, "max_clients=0: must be an integer from 1"),
        ({"max_per_address": 0}, "max_per_address=0: must be"),
        ({"hello_burst": -1}, "hello_burst=-1: must be"),
        ({"hello_rate": float("nan")}, "hello_rate=nan is no rate"),
        ({"hello_rate": 0}, "hello_rate=0 is no rate"),
        ({"join_timeout": 0}, "join_timeout=0: must be a number of seconds > 0"),
        ({"left_timeout": -1}, "left_timeout=-1: must be a number of seconds >= 0"),
        ({"closing_timeout": float("inf")}, "closing_timeout=inf: must be"),
        ({"handshake_timeout": -1}, "handshake_timeout=-1: must be"),
        ({"idle_timeout": 0}, "idle_timeout=0: must be"),
        ({"base_port": 65500, "max_clients": 19}, "duologue ports 65500 to 65537 are not all ports"),
        ({"base_port": 8999}, "initial_port 9000 is one of the duologues' ports"),
        ({"initial_control_port": 9000}, "are both 9000"),
    ],
)
def test_a_server_refuses_what_it_cannot_use(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        ServerSettings(**{"address": "192.0.2.1", **settings})


def test_the_last_port_may_be_a_duologues() -> None:
    assert ServerSettings(address="192.0.2.1", base_port=65500, max_clients=18).max_clients == 18


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"timeout": 0}, "timeout=0: must be a number of seconds > 0"),
        ({"timeout": float("nan")}, "timeout=nan: must be"),
        ({"initial_port": -1}, "initial_port -1 is not a port"),
        ({"mtu": 65536}, "mtu 65536 is not"),
    ],
)
def test_a_client_refuses_what_it_cannot_use(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        ClientSettings(server="192.0.2.1", **settings)


def test_an_ipv6_address_has_its_brackets_in_every_channel() -> None:
    client = ClientSettings(server="2001:db8::1")
    assert client.initial_subscription.startswith("aeron:udp?endpoint=[::]:0|control=[2001:db8::1]:9001|")
    assert client.duologue_publication(9010, 17).endswith("|session-id=17")
    server = ServerSettings(address="2001:db8::1")
    assert server.duologue_subscription(9010, 17) == "aeron:udp?endpoint=[2001:db8::1]:9010|session-id=17"
