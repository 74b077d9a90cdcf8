"""The driver's and the client's settings."""

from __future__ import annotations

import os

import pytest

from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.directory import default_directory
from mainstem.aeron.driver.conductor.sender_factory import flow_control_defaults
from mainstem.aeron.driver.settings import (
    CONGESTION_CONTROL_SUPPLIERS,
    FLOW_CONTROL_SUPPLIERS,
    IDLE_AGENTS,
    DriverSettings,
    ThreadingMode,
    port_range,
)
from mainstem.aeron.idle import idle_strategy
from mainstem.errors import ConfigurationError
from mainstem.settings import Source

# Copied by hand from the table of docs/protocols/aeron.md, 24, in the syntax that the reference accepts.
DEFAULTS = """
AERON_DIR_DELETE_ON_START false | AERON_DIR_DELETE_ON_SHUTDOWN false | AERON_DIR_WARN_IF_EXISTS false
AERON_THREADING_MODE DEDICATED | AERON_DRIVER_TIMEOUT 10s | AERON_CONDUCTOR_BUFFER_LENGTH 1049344
AERON_CLIENTS_BUFFER_LENGTH 1048704 | AERON_COUNTERS_BUFFER_LENGTH 8m | AERON_ERROR_BUFFER_LENGTH 4m
AERON_LOSS_REPORT_BUFFER_LENGTH 1m | AERON_FILE_PAGE_SIZE 4k | AERON_TERM_BUFFER_LENGTH 16m
AERON_IPC_TERM_BUFFER_LENGTH 64m | AERON_TERM_BUFFER_SPARSE_FILE true | AERON_PERFORM_STORAGE_CHECKS true
AERON_LOW_FILE_STORE_WARNING_THRESHOLD 160m | AERON_MTU_LENGTH 1408 | AERON_IPC_MTU_LENGTH 1408
AERON_PUBLICATION_TERM_WINDOW_LENGTH 0 | AERON_IPC_PUBLICATION_TERM_WINDOW_LENGTH 0
AERON_PUBLICATION_LINGER_TIMEOUT 5s | AERON_CLIENT_LIVENESS_TIMEOUT 10s | AERON_IMAGE_LIVENESS_TIMEOUT 10s
AERON_PUBLICATION_UNBLOCK_TIMEOUT 15s | AERON_PUBLICATION_CONNECTION_TIMEOUT 5s | AERON_TIMER_INTERVAL 1s
AERON_COUNTERS_FREE_TO_REUSE_TIMEOUT 1s | AERON_SOCKET_SO_RCVBUF 128k | AERON_SOCKET_SO_SNDBUF 0
AERON_SOCKET_MULTICAST_TTL 0 | AERON_RCV_INITIAL_WINDOW_LENGTH 128k | AERON_RCV_STATUS_MESSAGE_TIMEOUT 200ms
AERON_SEND_TO_STATUS_POLL_RATIO 6 | AERON_NAK_UNICAST_DELAY 1us | AERON_NAK_UNICAST_RETRY_DELAY_RATIO 100
AERON_NAK_MULTICAST_GROUP_SIZE 10 | AERON_NAK_MULTICAST_MAX_BACKOFF 10ms | AERON_RETRANSMIT_UNICAST_DELAY 0ns
AERON_RETRANSMIT_UNICAST_LINGER 10ms | AERON_MAX_RESEND 16 | AERON_UNICAST_FLOWCONTROL_SUPPLIER unicast_max
AERON_MULTICAST_FLOWCONTROL_SUPPLIER multicast_max | AERON_FLOW_CONTROL_GROUP_TAG -1
AERON_FLOW_CONTROL_GROUP_MIN_SIZE 0 | AERON_FLOW_CONTROL_RECEIVER_TIMEOUT 5s | AERON_RECEIVER_GROUP_TAG
AERON_RECEIVER_GROUP_CONSIDERATION infer | AERON_CONGESTIONCONTROL_SUPPLIER default
AERON_CUBICCONGESTIONCONTROL_MEASURERTT false | AERON_CUBICCONGESTIONCONTROL_INITIALRTT 100us
AERON_CUBICCONGESTIONCONTROL_TCPMODE false | AERON_SPIES_SIMULATE_CONNECTION false | AERON_RELIABLE_STREAM true
AERON_TETHER_SUBSCRIPTIONS true | AERON_REJOIN_STREAM true | AERON_UNTETHERED_WINDOW_LIMIT_TIMEOUT 5s
AERON_UNTETHERED_LINGER_TIMEOUT | AERON_UNTETHERED_RESTING_TIMEOUT 10s
AERON_PUBLICATION_RESERVED_SESSION_ID_LOW -1 | AERON_PUBLICATION_RESERVED_SESSION_ID_HIGH 1000
AERON_RECEIVER_IO_VECTOR_CAPACITY 4 | AERON_SENDER_IO_VECTOR_CAPACITY 4
AERON_NETWORK_PUBLICATION_MAX_MESSAGES_PER_SEND 4 | AERON_DRIVER_STREAM_SESSION_LIMIT 2147483647
AERON_DRIVER_CONNECT true | AERON_SENDER_WILDCARD_PORT_RANGE | AERON_RECEIVER_WILDCARD_PORT_RANGE
AERON_DRIVER_RERESOLUTION_CHECK_INTERVAL 1s | AERON_CONDUCTOR_IDLE_STRATEGY backoff
AERON_SENDER_IDLE_STRATEGY backoff | AERON_RECEIVER_IDLE_STRATEGY backoff | AERON_SHARED_IDLE_STRATEGY backoff
AERON_SHAREDNETWORK_IDLE_STRATEGY backoff | AERON_SHAREDNETWORK_IDLE_STRATEGY_INIT_ARGS
AERON_DRIVER_NATIVE_RESOURCE_AGENT_IDLE_STRATEGY sleep-ns
AERON_DRIVER_NATIVE_RESOURCE_AGENT_IDLE_STRATEGY_INIT_ARGS 1ms | AERON_CONDUCTOR_CPU_AFFINITY -1
AERON_SENDER_CPU_AFFINITY -1 | AERON_RECEIVER_CPU_AFFINITY -1 | AERON_DRIVER_CONDUCTOR_CYCLE_THRESHOLD 100ms
AERON_DRIVER_SENDER_CYCLE_THRESHOLD 100ms | AERON_DRIVER_RECEIVER_CYCLE_THRESHOLD 100ms
AERON_DRIVER_NAME_RESOLVER_THRESHOLD 5s | AERON_DRIVER_RESOURCE_FREE_LIMIT 1
AERON_DRIVER_TERMINATION_VALIDATOR deny | AERON_PRINT_CONFIGURATION false | AERON_NAME_RESOLVER_SUPPLIER default
AERON_NAME_RESOLVER_INIT_ARGS | AERON_DRIVER_RESOLVER_NAME | AERON_DRIVER_RESOLVER_INTERFACE
AERON_DRIVER_RESOLVER_BOOTSTRAP_NEIGHBOR | AERON_DRIVER_RESOLVER_NEIGHBOR_TIMEOUT 10s
AERON_DRIVER_RESOLVER_SELF_RESOLUTION_INTERVAL 1s | AERON_DRIVER_RESOLVER_NEIGHBOR_RESOLUTION_INTERVAL 2s
AERON_DRIVER_RESOLVER_BOOTSTRAP_NEIGHBOR_RESOLUTION_INTERVAL 10s | AERON_UDP_CHANNEL_INCOMING_INTERCEPTORS
AERON_UDP_CHANNEL_OUTGOING_INTERCEPTORS | AERON_UDP_CHANNEL_TRANSPORT_BINDINGS_LOSS_ARGS | AERON_EVENT_LOG
AERON_EVENT_LOG_DISABLE | AERON_EVENT_LOG_FILENAME | AERON_EVENT_LOG_FILE_MAX_LENGTH 0 | AERON_THREAD_NAMING classic
"""


@pytest.mark.parametrize("line", [one.strip() for one in DEFAULTS.strip().replace("\n", "|").split("|")])
def test_the_defaults_are_the_references(line):
    env, _, value = line.partition(" ")
    explanation = DriverSettings.load(environ={}).explain(env)
    assert explanation.env == env
    assert explanation.value == explanation.default == value


def test_every_default_is_read_back_as_it_is_shown():
    settings = DriverSettings.load(environ={})
    shown = {one.env: one.value for one in settings.explain_all() if one.value}
    again = DriverSettings.load(environ=shown)
    assert again == settings
    assert again.source("mtu_length") is Source.ENVIRONMENT


def test_an_operators_environment_works_unchanged():
    settings = DriverSettings.load(
        environ={
            "AERON_THREADING_MODE": "SHARED_NETWORK",
            "AERON_DRIVER_TIMEOUT": "20000",
            "AERON_TERM_BUFFER_LENGTH": "64k",
            "AERON_CLIENT_LIVENESS_TIMEOUT": "5000000000",
            "AERON_CONDUCTOR_IDLE_STRATEGY": "noop",
            "AERON_SENDER_WILDCARD_PORT_RANGE": "20700 20799",
            "AERON_ARCHIVE_DIR": "not ours",
        }
    )
    assert settings.threading_mode is ThreadingMode.SHARED_NETWORK
    assert settings.driver_timeout_ns == 20_000_000_000
    assert settings.term_buffer_length == 65536
    assert settings.client_liveness_timeout_ns == 5_000_000_000
    assert port_range(settings.sender_wildcard_port_range or "") == (20700, 20799)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"publication_unblock_timeout_ns": "10s"}, "must exceed AERON_CLIENT_LIVENESS_TIMEOUT"),
        (
            {"timer_interval_ns": "10s"},
            "AERON_CLIENT_LIVENESS_TIMEOUT of 10000000000 ns must exceed AERON_TIMER_INTERVAL",
        ),
        ({"timer_interval_ns": "5s"}, "AERON_UNTETHERED_WINDOW_LIMIT_TIMEOUT of 5000000000 ns must exceed"),
        ({"untethered_linger_timeout_ns": "1s"}, "AERON_UNTETHERED_LINGER_TIMEOUT of 1000000000 ns must exceed"),
        ({"untethered_resting_timeout_ns": "1s"}, "AERON_UNTETHERED_RESTING_TIMEOUT of 1000000000 ns must exceed"),
        (
            {"nak_unicast_delay_ns": "10s", "nak_unicast_retry_delay_ratio": 1 << 30},
            "AERON_NAK_UNICAST_RETRY_DELAY_RATIO",
        ),
        ({"name_resolver_supplier": "csv_table"}, "requires rows in AERON_NAME_RESOLVER_INIT_ARGS"),
        ({"publication_reserved_session_id_low": 2000}, "is above AERON_PUBLICATION_RESERVED_SESSION_ID_HIGH"),
        ({"driver_resolver_interface": "localhost:8050"}, "requires AERON_DRIVER_RESOLVER_NAME"),
        ({"driver_resolver_bootstrap_neighbor": ",".join("abcdefghijklmnopqrstu")}, "must be up to 20 of host:port"),
        ({"sender_idle_strategy": "nap"}, r"sender_idle_strategy must be backoff, .* \(got 'nap'\)"),
        ({"sender_idle_strategy_init_args": "1-2"}, "backoff takes max spins"),
        ({"receiver_wildcard_port_range": "9 8"}, "must be a first and a last port"),
        ({"counters_buffer_length": "501m"}, "must be a size in bytes, 1m to 500m"),
        ({"max_resend": 257}, "must be a whole number, 1 to 256"),
        ({"mtu_length": 32}, "must be a size in bytes, 64 to"),
        ({"ipc_mtu_length": 32}, "must be a size in bytes, 64 to"),
    ],
)
def test_unusable_values_are_refused(given, message):
    with pytest.raises(ConfigurationError, match=message):
        DriverSettings.load(environ={}, **given)


def test_the_environment_is_clamped_as_by_the_reference_and_says_so():
    settings = DriverSettings.load(environ={"AERON_MTU_LENGTH": "64k", "AERON_MAX_RESEND": "300"})
    assert (settings.mtu_length, settings.max_resend) == (65504, 256)
    assert settings.explain("mtu_length").origin == "environment AERON_MTU_LENGTH, clamped from 64k"
    assert "clamped from 300" in str(settings.explain("max_resend"))
    assert (
        DriverSettings.load(environ={"AERON_MAX_RESEND": "0x10"}).explain("max_resend").origin
        == "environment AERON_MAX_RESEND"
    )
    with pytest.raises(ConfigurationError, match=r"max_resend must be a whole number, 1 to 256 \(got 300\)"):
        DriverSettings.load(environ={}, toml={"driver": {"max_resend": 300}})


def test_the_client_shares_names_with_its_driver():
    environ = {"AERON_DIR": "/dev/shm/other", "AERON_DRIVER_TIMEOUT": "500", "AERON_CLIENT_NAME": "tide"}
    client = ClientSettings.load(environ=environ)
    assert (client.dir, client.driver_timeout_ns, client.client_name) == ("/dev/shm/other", 500_000_000, "tide")
    assert client.client_idle_sleep_duration_ns == 16_000_000
    assert client.client_resource_linger_duration_ns == 3_000_000_000
    assert not client.client_pre_touch_mapped_memory
    assert not client.require_own_driver
    assert ClientSettings.load(environ={"AERON_REQUIRE_OWN_DRIVER": "true"}).require_own_driver
    assert DriverSettings.load(environ=environ).dir == default_directory(environ) == "/dev/shm/other"
    assert default_directory({"USER": "mole"}).endswith("/aeron-mole")


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/opt/prices/feed.py", "feed.py"),
        ("/opt/prices/__main__.py", "prices"),
        ("-c", "python"),
        ("", "python"),
        ("my prices\n", "my_prices_"),
        ("x" * 300, "x" * 80),
    ],
)
def test_a_client_without_a_name_has_that_of_its_program_and_process(
    program: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [program])
    assert ClientSettings.load(environ={}).client_name == f"{name}-{os.getpid()}"
    assert ClientSettings.load(environ={"AERON_CLIENT_NAME": "tide"}).client_name == "tide"


IDLE_NAMES = {
    "backoff": ("aeron_idle_strategy_backoff", "org.agrona.concurrent.BackoffIdleStrategy"),
    "spin": ("aeron_idle_strategy_busy_spinning", "org.agrona.concurrent.BusySpinIdleStrategy"),
    "noop": ("aeron_idle_strategy_noop", "org.agrona.concurrent.NoOpIdleStrategy"),
    "yield": ("aeron_idle_strategy_yielding", "org.agrona.concurrent.YieldingIdleStrategy"),
    "sleep-ns": ("aeron_idle_strategy_sleeping", "org.agrona.concurrent.SleepingIdleStrategy", "sleeping"),
}


@pytest.mark.parametrize("agent", IDLE_AGENTS)
@pytest.mark.parametrize(
    ("name", "given"), [(name, each) for name, all_ in IDLE_NAMES.items() for each in (name, *all_)]
)
def test_every_agent_takes_the_references_names_of_idle_strategies(agent: str, name: str, given: str) -> None:
    settings = DriverSettings.load(environ={f"AERON_{agent.upper()}_IDLE_STRATEGY": given})
    assert idle_strategy(getattr(settings, f"{agent}_idle_strategy")).name == name


@pytest.mark.parametrize("setting", ["unicast_flowcontrol_supplier", "multicast_flowcontrol_supplier"])
@pytest.mark.parametrize("name", FLOW_CONTROL_SUPPLIERS)
def test_a_flow_control_supplier_has_the_references_name_or_symbol(setting: str, name: str) -> None:
    settings = DriverSettings.load(environ={f"AERON_{setting.upper()}": name})
    defaults = flow_control_defaults(settings)
    used = defaults.unicast if setting.startswith("unicast") else defaults.strategy
    assert used is FLOW_CONTROL_SUPPLIERS[name]


@pytest.mark.parametrize("name", CONGESTION_CONTROL_SUPPLIERS)
def test_a_congestion_control_supplier_has_the_references_name_or_symbol(name: str) -> None:
    assert DriverSettings.load(environ={"AERON_CONGESTIONCONTROL_SUPPLIER": name}).congestioncontrol_supplier == name


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("AERON_UNICAST_FLOWCONTROL_SUPPLIER", r"must be unicast_max, .* \(got 'best'\)"),
        ("AERON_MULTICAST_FLOWCONTROL_SUPPLIER", r"must be unicast_max, .* \(got 'best'\)"),
        (
            "AERON_CONGESTIONCONTROL_SUPPLIER",
            r"must be default, static or cubic \(got 'best'\)",
        ),
    ],
)
def test_an_unknown_supplier_is_refused_when_the_driver_starts(setting: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DriverSettings.load(environ={setting: "best"})
