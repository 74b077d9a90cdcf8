"""Unusable duologue settings are refused by name, and ports and channels are derived from the others."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.duologue.channels import ClientChannels, ServerChannels
from mainstem.duologue.settings import Settings
from mainstem.errors import ConfigurationError


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mtu": 1185}, "mtu=1185: must be a multiple of 32"),
        ({"mtu": 32}, "mtu=32: must be"),
        ({"mtu": 65536}, "mtu=65536: must be"),
        ({"max_clients": 0}, "max_clients=0: must be an integer from 1"),
        ({"max_clients_per_address": 0}, "max_clients_per_address=0: must be"),
        ({"hello_burst": -1}, "hello_burst=-1: must be"),
        ({"hello_rate": float("nan")}, "hello_rate=nan: must be above 0"),
        ({"hello_rate": 0}, "hello_rate=0: must be above 0"),
        ({"join_timeout": 0}, "join_timeout=0: must be a number of seconds > 0"),
        ({"left_timeout": -1}, "left_timeout=-1: must be a number of seconds >= 0"),
        ({"closing_timeout": float("inf")}, "closing_timeout=inf: must be"),
        ({"handshake_timeout": -1}, "handshake_timeout=-1: must be"),
        ({"idle_timeout": 0}, "idle_timeout=0: must be"),
        ({"heartbeat_timeout": 0.2}, "heartbeat_timeout=0.2: must exceed 0.2, the interval of heartbeats"),
    ],
)
def test_unusable_settings_are_rejected(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        Settings(**settings)


@pytest.mark.parametrize(
    ("host", "port", "settings", "reason"),
    [
        ("192.0.2.1", 0, {}, "port=0: must be from 1 to 65535"),
        ("192.0.2.1", 9000, {"control_port": 65536}, "control_port=65536: must be"),
        ("example.test", 9000, {}, "host='example.test': must be an IP address"),
        ("192.0.2.1", 9000, {"base_port": 65500, "max_clients": 19}, "65500 to 65537, must be from 1 to 65535"),
        ("192.0.2.1", 65500, {}, "65510 to 65637, must be from 1 to 65535; set base_port"),
        ("192.0.2.1", 9000, {"base_port": 8999}, "include port=9000; set base_port"),
        ("192.0.2.1", 9000, {"control_port": 9000}, "are both 9000"),
    ],
)
def test_a_server_rejects_unusable_ports(host: str, port: int, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        ServerChannels(host, port, Settings(**settings))


def test_a_client_rejects_an_invalid_port() -> None:
    with pytest.raises(ConfigurationError, match="port=-1: must be from 1 to 65535"):
        ClientChannels("192.0.2.1", -1)


def test_the_last_port_can_belong_to_a_duologue() -> None:
    assert ServerChannels("192.0.2.1", settings=Settings(base_port=65500, max_clients=18)).base_port == 65500


def test_ports_default_to_those_after_the_servers() -> None:
    server, client = ServerChannels("192.0.2.1", 7000), ClientChannels("192.0.2.1", 7000)
    assert (server.control_port, server.base_port, client.control_port) == (7001, 7010, 7001)
    server = ServerChannels("192.0.2.1", 7000, Settings(control_port=7005, base_port=8000))
    assert (server.control_port, server.base_port) == (7005, 8000)
    server = ServerChannels("192.0.2.1")
    assert (server.port, server.control_port, server.base_port) == (9000, 9001, 9010), "as the guide has them"


def test_channels_put_ipv6_addresses_in_brackets() -> None:
    client = ClientChannels("2001:db8::1")
    assert client.name == "[2001:db8::1]:9000"
    assert client.subscription().startswith("aeron:udp?endpoint=[::]:0|control=[2001:db8::1]:9001|")
    assert client.publication(9010, 17).endswith("|session-id=17")
    server = ServerChannels("2001:db8::1")
    assert server.subscription(9010, 17) == "aeron:udp?endpoint=[2001:db8::1]:9010|session-id=17"


def test_only_a_servers_driver_limits_streams_from_strangers() -> None:
    settings = Settings(heartbeat_timeout=2)
    own, server = settings.driver_settings(), settings.server_driver_settings()
    assert own.items() <= server.items()
    assert own["image_liveness_timeout_ns"] == 2_000_000_000
    assert {"endpoint_filter_rate", "driver_stream_session_limit"} <= server.keys() - own.keys()
