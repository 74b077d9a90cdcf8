"""Build captures with scapy: ``end_scapy.py DIRECTORY``. Writes each encapsulation, then each file type.

Skips what scapy does not support. Prints a JSON object that has, for each file, the number of packets and how many of them
carry a whole Aeron frame. Runs under a Python that has scapy and needs nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scapy.all import (  # type: ignore[import-not-found]
    AH,
    ARP,
    GRE,
    ICMP,
    IP,
    LLC,
    PPP,
    SNAP,
    STP,
    TCP,
    UDP,
    VXLAN,
    CookedLinux,
    Dot1AD,
    Dot1Q,
    Dot3,
    Ether,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Loopback,
    PcapNgWriter,
    PcapWriter,
    PPPoE,
    Raw,
    fragment,
    fragment6,
    load_contrib,
    wrpcap,
)

for contribution in ("mpls", "erspan", "geneve"):
    load_contrib(contribution)
from scapy.contrib.erspan import ERSPAN, ERSPAN_III  # type: ignore[import-not-found] # noqa: E402
from scapy.contrib.geneve import GENEVE, GeneveOptions  # type: ignore[import-not-found] # noqa: E402
from scapy.contrib.mpls import MPLS  # type: ignore[import-not-found] # noqa: E402

A, B, A6, B6 = "192.168.7.1", "192.168.7.2", "fe80::7:1", "fe80::7:2"
PORTS = {"sport": 40001, "dport": 40123}


MACS = {"src": "02:00:00:00:00:01", "dst": "00:00:00:00:00:02"}


def link(**fields):  # type: ignore[no-untyped-def]
    """Return an Ethernet header with fixed addresses, since scapy would otherwise ask the network for them."""
    return Ether(**MACS, **fields)


def aeron(size: int = 100) -> bytes:
    """Return a DATA frame: length, version, flags, type, term offset, session, stream, term, reserved value, payload."""
    length = 32 + size
    head = length.to_bytes(4, "little") + bytes([0, 0xC0, 1, 0])
    head += b"".join(value.to_bytes(4, "little") for value in (64, 7, 1001, 3)) + bytes(8)
    return head + bytes(size + -length % 32)


def v4(size: int = 100):  # type: ignore[no-untyped-def]
    return IP(src=A, dst=B) / UDP(**PORTS) / Raw(aeron(size))


def v6(size: int = 100):  # type: ignore[no-untyped-def]
    return IPv6(src=A6, dst=B6) / UDP(**PORTS) / Raw(aeron(size))


def outer(protocol: int | None = None):  # type: ignore[no-untyped-def]
    return link() / (IP(src="10.0.0.1", dst="10.0.0.2") if protocol is None else IP(proto=protocol))


def wrapped():  # type: ignore[no-untyped-def]
    """Yield (name, packet) pairs; each packet carries one Aeron frame to ports 40123."""
    for name, inner in (("4", v4), ("6", v6)):
        ethertype = 0x0800 if name == "4" else 0x86DD
        label = MPLS(label=99, s=0) / MPLS(label=100, s=1)
        yield f"ether {name}", link() / inner()
        yield f"dot1q {name}", link() / Dot1Q(vlan=5) / inner()
        yield f"qinq {name}", link() / Dot1AD(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / inner()
        yield f"mpls {name}", link(type=0x8847) / label / inner()
        yield (
            f"ethernet over mpls {name}",
            link(type=0x8847) / MPLS(label=9, s=1) / link() / inner(),
        )
        yield f"pppoe {name}", link() / PPPoE(sessionid=7) / PPP(proto=0x21 if name == "4" else 0x57) / inner()
        yield f"gre {name}", outer() / GRE() / inner()
        yield f"gre with all {name}", outer() / GRE(chksum_present=1, key_present=1, seqnum_present=1) / inner()
        yield f"gretap {name}", outer() / GRE(proto=0x6558) / link() / inner()
        yield f"erspan II {name}", outer() / GRE(proto=0x88BE, seqnum_present=1) / ERSPAN() / link() / inner()
        yield f"erspan III {name}", outer() / GRE(proto=0x22EB, seqnum_present=1) / ERSPAN_III() / link() / inner()
        plain = {"vni": 7, "flags": 8, "NextProtocol": 0}
        yield f"vxlan {name}", outer() / UDP(sport=1, dport=4789) / VXLAN(**plain) / link() / inner()
        yield f"vxlan gpe {name}", outer() / UDP(sport=1, dport=4790) / VXLAN(vni=7) / link() / inner()
        yield f"ip in vxlan gpe {name}", outer() / UDP(sport=1, dport=4790) / VXLAN(vni=7) / inner()
        yield (
            f"vxlan gbp {name}",
            outer() / UDP(sport=1, dport=4789) / VXLAN(vni=7, flags=0x88, gpid=300) / link() / inner(),
        )
        yield f"geneve {name}", outer() / UDP(sport=1, dport=6081) / GENEVE(vni=7) / link() / inner()
        options = [GeneveOptions(classid=0x102, type=0x80, data=bytes(12))]
        yield (
            f"geneve with options {name}",
            outer() / UDP(sport=1, dport=6081) / GENEVE(vni=7, options=options) / link() / inner(),
        )
        yield f"ip in geneve {name}", outer() / UDP(sport=1, dport=6081) / GENEVE(vni=7) / inner()
        yield (
            f"vxlan over 6 {name}",
            link() / IPv6() / UDP(sport=1, dport=4789) / VXLAN(vni=7) / link() / Dot1Q(vlan=2) / inner(),
        )
        yield f"in ip {name}", outer() / inner()
        yield f"in ip6 {name}", link() / IPv6() / inner()
        yield f"gre over 6 {name}", link() / IPv6() / GRE(proto=ethertype) / inner()
    rest = UDP(**PORTS) / Raw(aeron())
    yield "options", link() / IP(src=A, dst=B, options=[("NOP")] * 8) / rest
    for header in (IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(addresses=[B6]), IPv6ExtHdrFragment()):
        yield type(header).__name__, link() / IPv6(src=A6, dst=B6) / header / rest
    many = IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrRouting() / IPv6ExtHdrDestOpt()
    yield "extensions", link() / IPv6(src=A6, dst=B6) / many / rest
    # scapy does not compute the lengths and the next header.
    yield "authentication", link() / IP(src=A, dst=B) / AH(nh=17, payloadlen=4, icv=bytes(12)) / rest
    yield "authentication 6", link() / IPv6(src=A6, dst=B6) / AH(nh=17, payloadlen=4, icv=bytes(12)) / rest


def cut():  # type: ignore[no-untyped-def]
    """Yield (name, fragments) pairs; the fragments together carry one frame."""
    large = 3000
    yield "fragments 4", fragment(link() / v4(large), 1000)
    yield (
        "fragments 6",
        fragment6(link() / IPv6(src=A6, dst=B6) / IPv6ExtHdrFragment(id=5) / UDP(**PORTS) / Raw(aeron(large)), 1000),
    )
    yield "fragments of vxlan", fragment(outer() / UDP(sport=1, dport=4789) / VXLAN(vni=7) / link() / v4(large), 1000)
    yield "fragments of gre", fragment(outer() / GRE() / v4(large), 1000)
    yield "fragments of ip in ip", fragment(outer() / v6(large), 1000)
    yield (
        "fragments in vxlan",
        [outer() / UDP(sport=1, dport=4789) / VXLAN(vni=7) / link() / part for part in fragment(v4(large), 1000)],
    )
    yield "fragments in gre", [outer() / GRE() / part for part in fragment(v4(large), 1000)]


def others():  # type: ignore[no-untyped-def]
    """Yield packets without a frame."""
    yield link() / ARP(hwsrc=MACS["src"], psrc=A, pdst=B)
    yield link() / IP() / ICMP()
    yield link() / IP() / TCP(dport=81) / Raw(b"GET /")
    yield link() / IPv6() / TCP(dport=81, flags="S")
    yield link() / IP() / UDP(dport=53) / Raw(b"something else" * 4)
    yield link() / IP() / UDP(dport=6081) / GENEVE(proto=0x894F) / Raw(bytes(40))
    yield Dot3(**MACS) / LLC() / STP()
    yield Dot3(**MACS) / LLC() / SNAP() / Raw(bytes(50))
    yield link() / Raw(bytes(60))


def main() -> None:
    directory = Path(sys.argv[1])
    facts: dict[str, tuple[int, int]] = {}

    def save(name: str, packets: list[object], frames: int, **options: object) -> None:
        wrpcap(str(directory / name), packets, **options)
        facts[name] = (len(packets), frames)

    for name, packet in wrapped():
        save(f"{name}.pcap", [packet], 1)
    for name, packets in cut():
        save(f"{name}.pcap", list(packets), 1)
        save(f"{name} reversed.pcap", list(reversed(packets)), 1)
    save("others.pcap", list(others()), 0)
    everything = [packet for _, packet in wrapped()] + list(others())
    count = len(list(wrapped()))
    for order in ("<", ">"):
        for nano in (False, True):
            name = f"file {'little' if order == '<' else 'big'} {'ns' if nano else 'us'}.pcap"
            with PcapWriter(str(directory / name), endianness=order, nano=nano, sync=True) as writer:
                writer.write(everything)
            facts[name] = (len(everything), count)
    save("packed.pcap.gz", everything, count, gz=True)
    with PcapNgWriter(str(directory / "blocks.pcapng")) as writer:
        writer.write(everything)
    facts["blocks.pcapng"] = (len(everything), count)
    inner = [v4(), v6()]
    save("raw.pcap", inner, 2, linktype=101)
    save("cooked.pcap", [CookedLinux(proto=0x0800) / v4(), CookedLinux(proto=0x86DD) / v6()], 2)
    save("loopback.pcap", [Loopback(type=2) / v4(), Loopback(type=24) / v6()], 2)
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
