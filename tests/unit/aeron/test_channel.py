"""Channel URIs: every parameter as the driver reads it, invalid channels, and misspellings that a client refuses."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.channel import KEYS, UNREAD, ChannelUri, check_channel
from mainstem.aeron.channel_values import (
    RESERVED_VALUE_OFFSET,
    RESPONSE_PROTOTYPE,
    CongestionControlChoice,
    ControlMode,
    FlowControlParams,
    FlowControlStrategy,
    Interface,
    parse_address,
    parse_interface,
    written_offset,
)
from mainstem.errors import ChannelUriError

UDP = "aeron:udp?endpoint=localhost:40456|"
INT64_MAX = (1 << 63) - 1

ACCEPTED = [
    ("control=[::1]:0", "control", "[::1]:0"),
    ("control-mode=manual", "control_mode", ControlMode.MANUAL),
    ("control-mode=auto", "control_mode", None),
    ("interface=192.168.0.0/24", "interface", "192.168.0.0/24"),
    ("interface=192.168.0.0:7/24", "network_interface", Interface("192.168.0.0", 24, 7)),
    ("interface=[fe80::1%eth0]:7/64", "network_interface", Interface("fe80::1", 64, 7)),
    ("interface={eth0}:7", "network_interface", Interface("", None, 7, "eth0")),
    ("ttl=255", "ttl", 255),
    ("ttl=256", "ttl", 255),
    ("ttl=x", "ttl", 0),
    ("mtu=8k", "mtu", 8192),
    ("mtu=8kb", "mtu", 8192),
    ("mtu=64", "mtu", 64),
    ("mtu=65504", "mtu", 65504),
    ("mtu=1408|mtu=2048", "mtu", 1408),
    ("term-length=64k", "term_length", 65536),
    ("term-length=1g", "term_length", 1 << 30),
    ("init-term-id=-2147483648", "init_term_id", -(1 << 31)),
    ("term-id=0x10", "term_id", 16),
    ("term-id=010", "term_id", 8),
    ("term-offset=64", "term_offset", 64),
    ("term-offset=64k", "term_offset", 64),
    ("session-id=-5", "session_id", -5),
    ("session-id=tag:7", "session_id_tag", 7),
    ("session-id=9|session-id=tag:7", "session_id", 9),
    ("linger=0", "linger_ns", 0),
    ("linger=5s", "linger_ns", 5_000_000_000),
    ("linger=" + "9" * 30, "linger_ns", INT64_MAX),
    ("eos=false", "eos", False),
    ("eos=truely", "eos", True),
    ("ssc=true", "spies_simulate_connection", True),
    ("fc=max", "flow_control", FlowControlParams(FlowControlStrategy.MAX)),
    ("fc=max,rrwm:4", "flow_control", FlowControlParams(FlowControlStrategy.MAX, retransmit_window_multiple=4)),
    ("fc=min,g:/3", "flow_control", FlowControlParams(FlowControlStrategy.MIN, group_min_size=3)),
    (
        "fc=tagged,g:-9/2,t:250ms,rrwm:3",
        "flow_control",
        FlowControlParams(FlowControlStrategy.TAGGED, -9, 2, 250_000_000, 3),
    ),
    ("fc=tagged,g:101", "flow_control", FlowControlParams(FlowControlStrategy.TAGGED, group_tag=101)),
    ("fc=min,g:x", "flow_control", FlowControlParams(FlowControlStrategy.MIN)),
    ("max-resend=256", "max_resend", 256),
    ("pub-wnd=64k", "publication_window_length", 65536),
    ("response-correlation-id=-1", "response_correlation_id", -1),
    ("response-correlation-id=prototype", "response_correlation_id", RESPONSE_PROTOTYPE),
    ("sparse=false", "sparse", False),
    ("reliable=false", "reliable", False),
    ("tether=false", "tether", False),
    ("rejoin=false", "rejoin", False),
    ("group=true", "group", True),
    ("group=infer", "group", None),
    ("group=maybe", "group", False),
    ("gtag=-9223372036854775808", "group_tag", -(1 << 63)),
    ("cc=cubic", "congestion_control", CongestionControlChoice.CUBIC),
    ("rcv-wnd=256k", "receiver_window_length", 262144),
    ("nak-delay=10us", "nak_delay_ns", 10_000),
    ("so-rcvbuf=2m", "so_rcvbuf", 2 << 20),
    ("so-sndbuf=0", "so_sndbuf", 0),
    ("untethered-window-limit-timeout=1s", "untethered_window_limit_timeout_ns", 1_000_000_000),
    ("untethered-linger-timeout=2s", "untethered_linger_timeout_ns", 2_000_000_000),
    ("untethered-resting-timeout=3s", "untethered_resting_timeout_ns", 3_000_000_000),
    ("tags=4", "channel_tag", 4),
    ("tags=4x", "channel_tag", 4),
    ("tags=4,5", "entity_tag", 5),
    ("tags=,5", "channel_tag", None),
    ("tags=4,", "entity_tag", None),
    ("media-rcv-ts-offset=reserved", "media_receive_timestamp_offset", RESERVED_VALUE_OFFSET),
    ("channel-rcv-ts-offset=0", "channel_receive_timestamp_offset", 0),
    ("channel-snd-ts-offset=8", "channel_send_timestamp_offset", 8),
    ("ats=false", "ats", False),
]


@pytest.mark.parametrize(("text", "name", "value"), ACCEPTED)
def test_a_parameter_is_read_typed(text, name, value):
    uri = ChannelUri.parse(UDP + text)
    assert getattr(uri, name) == value
    assert str(uri) == UDP + text


def test_every_parameter_that_is_read_is_tried():
    tried = {pair.partition("=")[0] for text, _, _ in ACCEPTED for pair in text.split("|")}
    assert tried | {"endpoint"} | set(UNREAD) == KEYS


@pytest.mark.parametrize(
    ("marked", "reason"),
    [
        ("^", "Aeron URIs must start with 'aeron:'"),
        ("^udp://localhost:1", "begin with aeron:udp or aeron:ipc"),
        ("aeron-spy:^udp?endpoint=a:1", "begin with aeron:udp or aeron:ipc"),
        ("aeron:^tcp?endpoint=a:1", "unknown media: 'tcp'"),
        ("aeron:^udp", "needs parameters"),
        ("aeron:udp?endpoint=a:1|^|mtu=64", "'' is not a parameter"),
        ("aeron:udp?^endpoint|mtu=64", "'endpoint' is not a parameter"),
        ("aeron:udp?endpoint=^|mtu=64", "endpoint has no value"),
        ("aeron:udp?^=5", "'=5' is a value without a key"),
        ("aeron-spy:aeron:^ipc", "aeron:ipc has none"),
    ],
)
def test_text_that_is_not_a_channel_is_an_invalid_channel(marked, reason):
    """The caret marks the position of the error."""
    text, position = marked.replace("^", ""), marked.find("^")
    with pytest.raises(ChannelUriError, match="channel ") as caught:
        ChannelUri.parse(text)
    assert reason in caught.value.reason
    assert caught.value.position == position
    assert caught.value.uri == text


@pytest.mark.parametrize(
    ("marked", "name", "reason"),
    [
        ("endpoint=^localhost", "endpoint_address", "'' is not a port"),
        ("endpoint=^localhost:", "endpoint_address", "'' is not a port"),
        ("endpoint=^localhost:65536", "endpoint_address", "'65536' is not a port"),
        ("endpoint=^::1]:40456", "endpoint_address", "brackets"),
        ("endpoint=^" + "a" * 400 + ":1", "endpoint_address", "400 characters exceeds"),
        ("interface=^10.0.0.0/33", "network_interface", "33 is not in 0 to 32"),
        ("interface=^10.0.0.0/x", "network_interface", "'x' is not a whole number"),
        ("interface=^10.0.0.0/8:7", "network_interface", "the port must come before the prefix"),
        ("interface=^10.0.0.0/1234567", "network_interface", "not a prefix length"),
        ("interface=^{eth0", "network_interface", "in braces"),
        ("interface=^{eth0}x", "network_interface", "is not a port"),
        ("mtu=^32", "mtu", "32 is not in 64 to 65504"),
        ("mtu=^65", "mtu", "65 is not a multiple of 32"),
        ("mtu=^64k", "mtu", "64k is not in 64 to 65504"),
        ("mtu=^8x", "mtu", "'8x' is not a size"),
        ("mtu=^-1", "mtu", "-1 is not in 0"),
        ("term-length=^100000", "term_length", "100000 is not a power of two"),
        ("term-length=^32k", "term_length", "32k is not in 64k to 1g"),
        ("term-offset=^33", "term_offset", "33 is not a multiple of 32"),
        ("session-id=^2147483648", "session_id", "2147483648 is not in"),
        ("session-id=^tag:7", "session_id", "'tag:7' is not a whole number"),
        ("session-id=^tag:x", "session_id_tag", "'x' is not a whole number"),
        ("linger=^5x", "linger_ns", "'5x' is not a duration"),
        ("linger=^5m|eos=true", "linger_ns", "'5m' is not a duration"),
        ("eos=^yes", "eos", "'yes' is not true or false"),
        ("fc=^fast", "flow_control", "'fast' is not one of max, min, tagged"),
        ("fc=^min,x:1", "flow_control", "'x:1' is not a flow control option"),
        ("fc=^max,t:5s", "flow_control", "max flow control knows no receivers"),
        ("max-resend=^0", "max_resend", "0 is not in 1 to 256"),
        ("response-correlation-id=^-2", "response_correlation_id", "-2 is not in -1 to"),
        (
            "response-correlation-id=^what",
            "response_correlation_id",
            "invalid response-correlation-id, must be a number greater than or equal to -1, or 'prototype': 'what' is not",
        ),
        ("cc=^bbr", "congestion_control", "'bbr' is not one of static, cubic"),
        ("tags=^x", "channel_tag", "'x' is not a whole number"),
        ("tags=^-1", "channel_tag", "-1 is not a tag"),
        ("tags=^4,x", "entity_tag", "'x' is not a whole number"),
    ],
)
def test_an_invalid_value_is_reported_with_its_position_when_read(marked, name, reason):
    """The caret marks the position of the error."""
    text, position = "aeron:udp?" + marked.replace("^", ""), 10 + marked.find("^")
    uri = ChannelUri.parse(text)
    with pytest.raises(ChannelUriError, match="channel ") as caught:
        getattr(uri, name)
    assert reason in caught.value.reason
    assert caught.value.position == position


def test_a_uri_that_is_too_long_is_refused():
    with pytest.raises(ChannelUriError, match=r"URI length \(4096\) exceeds max supported length \(4095\)"):
        ChannelUri.parse("aeron:ipc?alias=" + "x" * 4080)
    with pytest.raises(ChannelUriError, match=r"URI length \(4096\)"):
        ChannelUri.parse("aeron:ipc?alias=" + "\u00e9" * 2040)
    assert ChannelUri.parse("aeron:ipc?alias=" + "x" * 4079).values["alias"] == "x" * 4079


@pytest.mark.parametrize(
    "text",
    [
        "aeron:ipc",
        "aeron:ipc?",
        "aeron:ipc?alias=\u822a\u7a7a|future=5|",
        "aeron:ipc?endpoint=x|control-mode=dynamic",
        "aeron:udp?endpoint=a:1|half",
        "aeron-spy:aeron:udp?endpoint=localhost:40456",
    ],
)
def test_unused_parameters_may_have_any_value(text):
    assert str(ChannelUri.parse(text)) == text


def test_an_empty_last_value_counts_as_missing():
    uri = ChannelUri.parse("aeron:udp?endpoint=a:1|mtu=")
    assert uri.mtu is None
    assert ChannelUri.parse("aeron:udp?endpoint=a:1|endpoint=").endpoint is None
    assert ChannelUri.parse("aeron:udp?mtu=64|mtu=").mtu == 64


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("aeron:udp?mtu=64", "must specify an endpoint"),
        ("aeron:udp?control-mode=auto", "must specify an endpoint"),
        ("aeron:udp?control-mode=dynamic|endpoint=a:1", "explicit control expected with dynamic control mode"),
    ],
)
def test_a_network_channel_shows_its_address(text, reason):
    with pytest.raises(ChannelUriError, match=reason):
        ChannelUri.parse(text).check_udp()
    for parameters in ("control-mode=manual", "control-mode=response", "tags=x", "control=a:1|control-mode=dynamic"):
        ChannelUri.parse(f"aeron:udp?{parameters}").check_udp()


@pytest.mark.parametrize("key", ["mtu=64", "rcv-wnd=64k", "so-rcvbuf=1m", "so-sndbuf=x", "response-correlation-id=3"])
def test_a_destination_carries_nothing_of_the_whole_channel(key):
    with pytest.raises(ChannelUriError, match="destinations must not contain the key: "):
        ChannelUri.parse(UDP + key).check_destination()
    with pytest.raises(ChannelUriError, match="destinations may not specify control-mode=response"):
        ChannelUri.parse("aeron:udp?control=a:1|control-mode=response").check_destination()


def test_timestamps_do_not_overlap():
    for offsets in ("channel-snd-ts-offset=7", "channel-snd-ts-offset=-5"):
        with pytest.raises(ChannelUriError, match="overlap"):
            ChannelUri.parse(f"{UDP}channel-rcv-ts-offset=0|{offsets}").check_timestamps()
    ChannelUri.parse(UDP + "channel-rcv-ts-offset=0|channel-snd-ts-offset=-1").check_timestamps()
    assert [written_offset(each) for each in (None, -1, -5, -8, 0, 9)] == [None, None, None, -8, 0, 9]


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("mtuu", "mtu"),
        ("mut", "mtu"),
        ("MTU", "mtu"),
        ("endpont", "endpoint"),
        ("endpiont", "endpoint"),
        ("term_length", "term-length"),
        ("termlength", "term-length"),
        ("term-lenght", "term-length"),
        ("sesion-id", "session-id"),
        ("CC", "cc"),
        ("untethered-linger-timout", "untethered-linger-timeout"),
    ],
)
def test_a_likely_misspelling_is_refused_and_named(key, known):
    with pytest.raises(ChannelUriError, match=f"'{key}' is not a parameter: '{known}' is") as caught:
        check_channel(f"{UDP}{key}=64")
    assert caught.value.position == len(UDP)
    ChannelUri.parse(f"{UDP}{key}=64")  # the driver takes it for a parameter of a newer version


@pytest.mark.parametrize("key", ["future", "x-trace", "dd", "zone", "priority", "", "=", "so", "window"])
def test_any_other_key_is_passed_on(key):
    check_channel(f"{UDP}{key}=64")
    check_channel(f"aeron:ipc?{key}")


def test_no_known_key_is_an_error_of_another():
    for key in KEYS:
        check_channel(f"aeron:ipc?{key}=manual")


@pytest.mark.parametrize(
    ("channel", "reason"),
    [
        (f"{UDP}session-id=", "session-id has no value; leave it out"),
        ("aeron:ipc?term-length=|mtu=1408", "term-length has no value"),
        (f"{UDP}control-mode=foo", "control-mode: 'foo' is not one of manual, dynamic, response"),
        (f"{UDP}stream-id=5", "stream-id: '5' is not the stream 7 that was requested"),
    ],
)
def test_a_client_refuses_mistakes_that_drivers_ignore(channel, reason):
    with pytest.raises(ChannelUriError, match=reason):
        check_channel(channel, 7)


def test_a_client_passes_on_parameters_that_are_not_mistakes():
    for text in ("stream-id=7", "alias=", "control-mode=dynamic", "mtu=8k|"):
        check_channel(f"{UDP}{text}", 7)
    check_channel(f"{UDP}stream-id=5")  # a destination has no stream


def test_addresses_and_interfaces_of_settings_are_taken_apart():
    assert parse_address("[fe80::1]:7") == ("fe80::1", 7)
    assert str(parse_address("[fe80::1]:7")) == "[fe80::1]:7"
    assert str(parse_address("host:7")) == "host:7"
    assert parse_interface("10.0.0.1") == Interface("10.0.0.1", None, 0)
    assert parse_interface("10.0.0.1/8:40") == Interface("10.0.0.1", 8, 40)
    assert parse_interface("[::1]:40") == Interface("::1", None, 40)
    for text in ("localhost", "localhost:x", ":5", "::1:5", "[::1:5", "[1.2.3.4]:1", "a b:1"):
        with pytest.raises(ValueError, match=r"\S"):
            parse_address(text)
    for text in ("[::1]x", "10.0.0.0/33", "10.0.0.0/8x", "[::]/64/3"):
        with pytest.raises(ValueError, match=r"\S"):
            parse_interface(text)


NAMES = [name for name in dir(ChannelUri) if isinstance(getattr(ChannelUri, name), property)]
NAMES += [name for name, value in vars(ChannelUri).items() if type(value).__name__ == "Value"]


@pytest.mark.fuzz
@given(
    st.one_of(st.text(max_size=60), st.text(alphabet="aeron:udpic?|=mtu,tagsfc[]/0123k", max_size=60)),
    st.sampled_from(sorted(KEYS)),
)
def test_any_text_is_a_channel_or_a_channel_error(text, key):
    for whole in (text, UDP + text, "aeron:ipc?" + text, f"{UDP}{key}={text}"):
        with suppress(ChannelUriError):
            check_channel(whole)
        try:
            uri = ChannelUri.parse(whole)
        except ChannelUriError:
            continue
        for name in NAMES:
            with suppress(ChannelUriError):
                getattr(uri, name)
