"""Channel URIs: every parameter, its limits, contradictions, and the way back to text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.channel import PARAMETERS, ChannelUri
from mainstem.aeron.channel_values import (
    RESERVED_VALUE_OFFSET,
    RESPONSE_PROTOTYPE,
    CongestionControlChoice,
    ControlMode,
    FlowControlParams,
    FlowControlStrategy,
    parse_address,
    parse_interface,
)
from mainstem.errors import ChannelUriError

UDP = "aeron:udp?endpoint=localhost:40456|"

ACCEPTED = [
    ("control=[::1]:0", "control", "[::1]:0"),
    ("control-mode=manual", "control_mode", ControlMode.MANUAL),
    ("interface=192.168.0.0/24", "interface", "192.168.0.0/24"),
    ("ttl=255", "ttl", 255),
    ("mtu=8k", "mtu", 8192),
    ("mtu=32", "mtu", 32),
    ("mtu=65504", "mtu", 65504),
    ("term-length=64k", "term_length", 65536),
    ("term-length=1g", "term_length", 1 << 30),
    ("init-term-id=-2147483648|term-id=-2147483648|term-offset=64", "term_offset", 64),
    ("init-term-id=2147483647|term-id=-2147483648|term-offset=0", "term_id", -(1 << 31)),
    ("session-id=-5", "session_id", -5),
    ("session-id=tag:7", "session_id_tag", 7),
    ("session-id=tag:7|session-id=9", "session_id", 9),
    ("linger=0", "linger_ns", 0),
    ("linger=5s", "linger_ns", 5_000_000_000),
    ("eos=false", "eos", False),
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
    ("tags=4,5", "entity_tag", 5),
    ("alias=flights=of 2013", "alias", "flights=of 2013"),
    ("media-rcv-ts-offset=reserved", "media_receive_timestamp_offset", RESERVED_VALUE_OFFSET),
    ("channel-rcv-ts-offset=0", "channel_receive_timestamp_offset", 0),
    ("channel-snd-ts-offset=8", "channel_send_timestamp_offset", 8),
    ("stream-id=-1", "stream_id", -1),
    ("response-endpoint=host-1.example.org:9", "response_endpoint", "host-1.example.org:9"),
    ("ats=false", "ats", False),
]


@pytest.mark.parametrize(("text", "name", "value"), ACCEPTED)
def test_a_parameter_is_read_typed_and_written_back(text, name, value):
    uri = ChannelUri.parse(UDP + text)
    assert getattr(uri, name) == value
    assert ChannelUri.parse(str(uri)) == uri


def test_every_parameter_of_the_table_is_tried():
    tried = {pair.partition("=")[0] for text, _, _ in ACCEPTED for pair in text.split("|")}
    assert tried | {"endpoint"} == set(PARAMETERS)


@pytest.mark.parametrize(
    ("marked", "reason"),
    [
        ("^", "begins with aeron:udp or aeron:ipc"),
        ("^udp://localhost:1", "begins with"),
        ("aeron-spy:^udp?endpoint=a:1", "begins with"),
        ("aeron:^tcp?endpoint=a:1", "medium 'tcp'"),
        ("aeron:udp?^", "'' is not a parameter"),
        ("aeron:udp?endpoint=a:1|^|mtu=64", "'' is not a parameter"),
        ("aeron:udp?^endpoint", "'endpoint' is not a parameter"),
        ("aeron:udp?endpoint=^", "endpoint has no value"),
        ("aeron:udp?^=5", "'=5' is not a parameter"),
        ("aeron:udp?endpoint=a:1|^mtuu=64", "'mtuu' is not a known parameter"),
        ("aeron:udp?endpoint=a:1|alias=^\u00e9", "not a printable ASCII character"),
        ("aeron:udp?endpoint=a:1|alias=a^\nb", "not a printable ASCII character"),
        ("aeron:udp?endpoint=^localhost", "a port is missing"),
        ("aeron:udp?endpoint=^localhost:", "'' is not a port"),
        ("aeron:udp?endpoint=^localhost:65536", "'65536' is not a port"),
        ("aeron:udp?endpoint=^:40456", "'' is not a host name"),
        ("aeron:udp?endpoint=^::1:40456", "stands in brackets"),
        ("aeron:udp?endpoint=^[::1:40456", "bracket"),
        ("aeron:udp?endpoint=^[1.2.3.4]:1", "not an IPv6 address"),
        ("aeron:udp?endpoint=^a b:1", "'a b' is not a host name"),
        (UDP + "interface=^10.0.0.0/33", "33 is not in 0 to 32"),
        (UDP + "interface=^10.0.0.0/8x", "'8x' is not a whole number"),
        (UDP + "interface=^[::]/64/3", "'64/3' is not a whole number"),
        (UDP + "control-mode=^auto", "'auto' is not one of manual, dynamic, response"),
        (UDP + "ttl=^256", "256 is not in 0 to 255"),
        (UDP + "ttl=^1e2", "'1e2' is not a whole number"),
        (UDP + "mtu=^33", "33 is not a multiple of 32"),
        (UDP + "mtu=^64k", "64k is not in 32 to 65504"),
        (UDP + "mtu=^8kb", "'8kb' is not a size"),
        (UDP + "term-length=^100000", "100000 is not a power of two"),
        (UDP + "term-length=^32k", "32k is not in 64k to 1g"),
        (UDP + "session-id=^2147483648", "2147483648 is not in"),
        (UDP + "session-id=^tag:x", "'x' is not a whole number"),
        (UDP + "linger=^5m", "'5m' is not a duration"),
        (UDP + "eos=^yes", "neither true nor false"),
        (UDP + "fc=^fast", "'fast' is not one of max, min, tagged"),
        (UDP + "fc=^min,x:1", "'x:1' is not a flow control option"),
        (UDP + "fc=^min,g:5", "only tagged flow control"),
        (UDP + "fc=^max,t:5s", "max flow control knows no receivers"),
        (UDP + "max-resend=^0", "0 is not in 1 to 256"),
        (UDP + "response-correlation-id=^-2", "-2 is not in -1 to"),
        (UDP + "cc=^bbr", "'bbr' is not one of static, cubic"),
        (UDP + "tags=^1,", "'' is not a whole number"),
        (UDP + "group=^maybe", "neither true nor false"),
        # contradictions
        ("aeron:udp", "needs an endpoint"),
        ("aeron:udp?control-mode=^dynamic|endpoint=a:1", "control-mode=dynamic needs a control address"),
        ("aeron:udp?control-mode=^response", "control-mode=response needs a control address"),
        ("aeron:ipc?endpoint=^a:1", "takes no endpoint"),
        ("aeron:ipc?control-mode=^dynamic", "no dynamic destinations"),
        ("aeron-spy:aeron:ipc", "aeron:ipc has none"),
        (UDP + "init-term-id=^5", "come together or not at all"),
        (UDP + "init-term-id=5|term-id=^4|term-offset=0", "lies before init-term-id 5"),
        (UDP + "init-term-id=5|term-id=5|term-offset=^33", "not a multiple of 32"),
        (UDP + "init-term-id=5|term-id=5|term-offset=^128k|term-length=64k", "exceeds the term length"),
        (UDP + "pub-wnd=^1024|mtu=2048", "below the mtu"),
        (UDP + "pub-wnd=^64k|term-length=64k", "exceeds half the term length"),
        (UDP + "rcv-wnd=^256k|so-rcvbuf=128k", "exceeds so-rcvbuf"),
        (UDP + "channel-rcv-ts-offset=0|channel-snd-ts-offset=^7", "overlap"),
        (UDP + "channel-rcv-ts-offset=reserved|channel-snd-ts-offset=^reserved", "overlap"),
    ],
)
def test_a_wrong_uri_says_what_is_wrong_and_where(marked, reason):
    """The caret marks the place, where there is one."""
    text, position = marked.replace("^", ""), marked.find("^")
    with pytest.raises(ChannelUriError, match="channel ") as caught:
        ChannelUri.parse(text)
    assert reason in caught.value.reason
    assert caught.value.position == position
    assert caught.value.uri == text


def test_a_uri_that_is_too_long_is_refused():
    with pytest.raises(ChannelUriError, match="4096 characters exceed the maximum of 4095"):
        ChannelUri.parse("aeron:ipc?alias=" + "x" * 4080)
    assert ChannelUri.parse("aeron:ipc?alias=" + "x" * 4079).alias == "x" * 4079


@pytest.mark.parametrize(
    "text",
    [
        "aeron:ipc",
        "aeron:ipc?control-mode=response|response-correlation-id=9",
        "aeron:udp?control-mode=manual",
        "aeron:udp?tags=1001",
        "aeron:udp?control=localhost:40456|control-mode=dynamic",
        "aeron-spy:aeron:udp?endpoint=localhost:40456",
        "aeron:udp?endpoint=224.20.30.39:40456|interface=localhost",
    ],
)
def test_channels_of_every_mode_are_accepted(text):
    assert str(ChannelUri.parse(text)) == text


def test_a_channel_is_built_from_values():
    uri = ChannelUri(endpoint="localhost:40456", mtu=8192, term_length=1 << 20, eos=False, linger_ns=1_500_000_000)
    assert str(uri) == "aeron:udp?endpoint=localhost:40456|mtu=8k|term-length=1m|linger=1500ms|eos=false"
    assert not uri.is_ipc
    assert uri.endpoint_address == ("localhost", 40456)
    assert uri.control_address is None


@pytest.mark.parametrize(
    "values",
    [
        {"media": "tcp"},
        {"endpoint": "a:1", "mtu": 33},
        {"endpoint": "a:1", "alias": "x|mtu=64"},
        {"endpoint": "a:1", "alias": ""},
        {"endpoint": "a:1", "session_id": 1, "session_id_tag": 2},
        {"media": "ipc", "endpoint": "a:1"},
    ],
)
def test_values_that_no_uri_can_say_are_refused(values):
    with pytest.raises(ChannelUriError):
        ChannelUri(**values)


def test_a_publication_neither_spies_nor_sends_to_port_zero():
    ChannelUri.parse("aeron:ipc").check_publication()
    with pytest.raises(ChannelUriError, match="spy can only subscribe"):
        ChannelUri.parse("aeron-spy:aeron:udp?endpoint=a:1").check_publication()
    with pytest.raises(ChannelUriError, match="port 0") as caught:
        ChannelUri.parse("aeron:udp?endpoint=a:0").check_publication()
    assert caught.value.position == 19
    ChannelUri.parse("aeron:udp?endpoint=a:0").check_subscription()
    with pytest.raises(ChannelUriError, match="encrypted transport"):
        ChannelUri.parse("aeron:udp?endpoint=a:1|ats=true").check_subscription()


@pytest.mark.parametrize("key", ["mtu=64", "rcv-wnd=64k", "so-rcvbuf=1m", "so-sndbuf=1m", "response-correlation-id=3"])
def test_a_destination_carries_nothing_of_the_whole_channel(key):
    with pytest.raises(ChannelUriError, match="not to one destination"):
        ChannelUri.parse(UDP + key).check_destination(receive=True)


def test_spies_and_ipc_are_destinations_of_subscriptions_only():
    for text in ("aeron-spy:aeron:udp?endpoint=a:1", "aeron:ipc"):
        uri = ChannelUri.parse(text)
        uri.check_destination(receive=True)
        with pytest.raises(ChannelUriError, match="udp destinations only"):
            uri.check_destination(receive=False)
    with pytest.raises(ChannelUriError, match="response channel"):
        ChannelUri.parse("aeron:udp?control=a:1|control-mode=response").check_destination(receive=True)


def test_addresses_and_interfaces_are_taken_apart():
    assert parse_address("[fe80::1]:7") == ("fe80::1", 7)
    assert str(parse_address("[fe80::1]:7")) == "[fe80::1]:7"
    assert str(parse_address("host:7")) == "host:7"
    assert parse_interface("10.0.0.1") == ("10.0.0.1", None, 0)
    assert parse_interface("10.0.0.1/8:40") == ("10.0.0.1", 8, 40)
    assert parse_interface("[::1]:40") == ("::1", None, 40)
    with pytest.raises(ValueError, match="left over"):
        parse_interface("[::1]x")


@pytest.mark.fuzz
@given(st.one_of(st.text(max_size=60), st.text(alphabet="aeron:udpic?|=mtu,tagsfc[]/0123k", max_size=60)))
def test_any_text_is_a_channel_or_a_channel_error(text):
    for whole in (text, UDP + text, "aeron:ipc?" + text):
        try:
            uri = ChannelUri.parse(whole)
        except ChannelUriError:
            continue
        assert ChannelUri.parse(str(uri)) == uri
