"""Channels as addresses."""

from __future__ import annotations

import pytest

from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.driver.media.addresses import LOOPBACK, InetAddress, LiteralResolver, NetworkInterface, text_of
from mainstem.aeron.driver.media.udp_channel import UdpChannel
from mainstem.errors import ChannelUriError

ETH = NetworkInterface(name="eth0", index=2, ip="192.168.5.7", is_loopback=False)
ETH6 = NetworkInterface(name="eth0", index=2, ip="fe80::5", is_loopback=False)
RESOLVER = LiteralResolver({"peer": "192.168.5.9"}, interfaces=(LOOPBACK, ETH, ETH6))


def channel(text: str) -> UdpChannel:
    return UdpChannel.parse(ChannelUri.parse(text), resolver=RESOLVER)


def test_unicast_sends_to_its_endpoint_from_any_interface() -> None:
    made = channel("aeron:udp?endpoint=peer:40123")
    assert made.remote_data == made.remote_control == InetAddress("192.168.5.9", 40123)
    assert made.local_control == made.local_data == InetAddress("0.0.0.0", 0)
    assert not made.is_multicast
    assert not made.has_many_destinations
    assert not made.has_group_semantics
    assert made.canonical_form == "UDP-0.0.0.0:0-peer:40123"


def test_an_interface_is_found_by_its_network() -> None:
    made = channel("aeron:udp?endpoint=peer:40123|interface=192.168.5.0:5000/24")
    assert made.local_control == InetAddress("192.168.5.7", 5000)
    with pytest.raises(ChannelUriError, match=r"10\.0\.0\.0/8"):
        channel("aeron:udp?endpoint=peer:40123|interface=10.0.0.0/8")


def test_multicast_control_is_the_next_address_and_loopback_the_last_choice() -> None:
    made = channel("aeron:udp?endpoint=224.10.9.7:4050|ttl=3")
    assert made.is_multicast
    assert made.remote_data == InetAddress("224.10.9.7", 4050)
    assert made.remote_control == InetAddress("224.10.9.8", 4050)
    assert (made.interface_ip, made.interface_index, made.ttl) == ("192.168.5.7", 2, 3)
    assert channel("aeron:udp?endpoint=224.10.9.7:4050|interface=localhost").interface_ip == "127.0.0.1"
    six = channel("aeron:udp?endpoint=[ff02::1:3]:4050|interface=[fe80::]/16")
    assert six.remote_control.ip == "ff02::1:4"
    assert six.interface_index == 2


@pytest.mark.parametrize(
    ("data", "control"),
    [
        ("224.10.9.255", "224.10.9.0"),
        ("239.255.255.255", "239.255.255.0"),
        ("[ff02::1:ff]", "ff02::1:0"),
        ("[ff02::ffff]", "ff02::ff00"),
    ],
)
def test_multicast_control_wraps_in_the_last_byte_as_the_references(data: str, control: str) -> None:
    uri = f"aeron:udp?endpoint={data}:4050" + ("|interface=[fe80::]/16" if ":" in data else "")
    assert channel(uri).remote_control == InetAddress(control, 4050)


def test_a_multicast_data_address_must_be_odd() -> None:
    with pytest.raises(ChannelUriError, match=r"multicast data address must be odd: 224\.10\.9\.8"):
        channel("aeron:udp?endpoint=224.10.9.8:4050")


def test_control_makes_a_multi_destination_sender_and_a_receivers_control_address() -> None:
    sender = channel("aeron:udp?control=192.168.5.7:4050|control-mode=dynamic")
    assert sender.has_many_destinations
    assert sender.local_control == InetAddress("192.168.5.7", 4050)
    receiver = channel("aeron:udp?endpoint=peer:4051|control=192.168.5.7:4050")
    assert receiver.has_explicit_control
    assert receiver.remote_data == InetAddress("192.168.5.9", 4051)
    assert receiver.remote_control == InetAddress("192.168.5.7", 4050)


def test_manual_destinations_need_no_address() -> None:
    made = channel("aeron:udp?control-mode=manual")
    assert made.is_manual
    assert made.remote_data == InetAddress("0.0.0.0", 0)


def test_a_response_channel_is_not_multi_destination() -> None:
    made = channel("aeron:udp?control=192.168.5.7:4050|control-mode=response")
    assert made.is_response
    assert not made.has_many_destinations


def test_identical_text_is_the_same_channel_except_with_a_wildcard_port() -> None:
    assert channel("aeron:udp?endpoint=peer:40123").matches(channel("aeron:udp?endpoint=peer:40123|mtu=4096"))
    assert not channel("aeron:udp?endpoint=peer:40123").matches(channel("aeron:udp?endpoint=peer:40124"))
    wild = "aeron:udp?endpoint=localhost:0"
    assert not channel(wild).matches(channel(wild))
    assert channel(wild + "|tags=5").matches(channel("aeron:udp?tags=5|endpoint=localhost:0"))
    assert channel(wild + "|tags=5").canonical_form.endswith("#5")


def test_an_interface_is_compared_by_its_address() -> None:
    for endpoint in ("endpoint=peer:40123", "endpoint=224.10.9.7:4050"):
        spellings = ["192.168.5.7", "192.168.5.0/24", "{eth0}"]
        forms = {channel(f"aeron:udp?{endpoint}|interface={each}").canonical_form for each in spellings}
        assert len(forms) == 1
        assert channel(f"aeron:udp?{endpoint}|interface=localhost").canonical_form not in forms
        assert channel(f"aeron:udp?{endpoint}|interface=192.168.5.7:99").canonical_form not in forms


def test_the_smallest_network_is_chosen_then_one_without_multicast_then_loopback() -> None:
    def made(name: str, ip: str, prefix_length: int, *, is_multicast: bool = True) -> NetworkInterface:
        return NetworkInterface(
            name=name,
            index=1,
            ip=ip,
            is_loopback=name == "lo",
            is_multicast=is_multicast,
            prefix_length=prefix_length,
        )

    found = [
        made("lo", "10.0.0.1", 32),
        made("tun0", "10.0.0.2", 30, is_multicast=False),
        made("eth0", "10.0.0.3", 8),
        made("eth1", "10.0.0.4", 24),
    ]
    uri = ChannelUri.parse("aeron:udp?endpoint=224.10.9.7:4050|interface=10.0.0.0/8")
    for chosen in ("10.0.0.4", "10.0.0.3", "10.0.0.2", "10.0.0.1"):
        assert UdpChannel.parse(uri, resolver=LiteralResolver(interfaces=found)).interface_ip == chosen
        found = [each for each in found if each.ip != chosen]


def test_a_destination_at_port_0_is_found_again_by_its_text() -> None:
    uri = ChannelUri.parse("aeron:udp?endpoint=localhost:0")
    added, removed = (UdpChannel.parse(uri, is_destination=True) for _ in range(2))
    assert added.canonical_form == removed.canonical_form


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("aeron:udp?endpoint=nowhere:1", "Unable to resolve host=.nowhere.: unknown host"),
        ("aeron:udp?endpoint=localhost:x", "'x' is not a port"),
        ("aeron:udp?endpoint=224.10.9.7:4050|interface=[fe80::5]", "must have the same IP version"),
        (
            "aeron:udp?endpoint=localhost:1|interface=203.0.113.7",
            "no network interface has an address in 203.0.113.7/32",
        ),
        ("aeron:udp?endpoint=localhost:1|interface={eth77}", "no network interface has an address named eth77"),
        ("aeron:udp?endpoint=localhost:1|interface=nowhere", "Unable to resolve host=.nowhere.: unknown host"),
    ],
)
def test_reports_values_that_do_not_fit(text: str, words: str) -> None:
    with pytest.raises(ChannelUriError, match=words):
        channel(text)


@pytest.mark.parametrize("address", [InetAddress("127.0.0.1", 40123), InetAddress("fe80::1", 5, 3)])
def test_an_address_survives_packing(address: InetAddress) -> None:
    assert InetAddress.unpack(address.packed) == address
    assert text_of(address.packed) == str(address)
    assert text_of(b"??") == "unknown"
    with pytest.raises(ValueError, match="not a packed"):
        InetAddress.unpack(b"")


def test_an_interface_is_found_by_its_name() -> None:
    assert channel("aeron:udp?endpoint=peer:40123|interface={lo}").local_control == InetAddress("127.0.0.1", 0)
    assert channel("aeron:udp?endpoint=peer:40123|interface={lo}:5000").local_control == InetAddress("127.0.0.1", 5000)
    with pytest.raises(ChannelUriError, match="of IPv6 on lo"):
        channel("aeron:udp?endpoint=[::1]:40123|interface={lo}")


def test_a_tag_names_a_channel_alone_or_with_the_same_addresses() -> None:
    opened = channel("aeron:udp?endpoint=peer:40123|tags=5")
    assert opened.has_tag_of(channel("aeron:udp?tags=5"))
    assert opened.has_tag_of(channel("aeron:udp?endpoint=peer:40123|tags=5,9"))
    assert not opened.has_tag_of(channel("aeron:udp?endpoint=peer:40123"))
    assert not opened.has_tag_of(channel("aeron:udp?endpoint=peer:40123|tags=6"))
    assert not opened.matches(channel("aeron:udp?endpoint=peer:40123|tags=6"))
    assert opened.matches(channel("aeron:udp?endpoint=peer:40123"))
    with pytest.raises(ChannelUriError, match="has mismatched endpoint or control"):
        opened.has_tag_of(channel("aeron:udp?endpoint=peer:40124|tags=5"))
    with pytest.raises(ChannelUriError, match="has mismatched control-mode"):
        opened.has_tag_of(channel("aeron:udp?tags=5|control-mode=manual"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("aeron:udp?endpoint=peer:0", "endpoint has port=0 for publication"),
        ("aeron:udp?control=peer:40123", "requires that either 'endpoint' or 'control-mode' is specified"),
        (
            "aeron:udp?endpoint=224.10.9.7:4050|control=peer:1|control-mode=dynamic",
            "cannot be used with a multicast endpoint",
        ),
    ],
)
def test_nothing_can_be_sent_through_some_channels(text: str, words: str) -> None:
    with pytest.raises(ChannelUriError, match=words):
        channel(text).check_publication()
    channel("aeron:udp?endpoint=peer:0|control-mode=manual").check_publication()
    channel("aeron:udp?control=peer:40123|control-mode=auto").check_publication()


def test_a_subscription_control_address_needs_a_port() -> None:
    with pytest.raises(ChannelUriError, match="control has port=0 for subscription"):
        channel("aeron:udp?endpoint=peer:40123|control=peer:0").check_subscription()
