"""Captures of every addressing mode, with loss: what Mainstem reads equals what tshark reads, field by field.

Wireshark's dissector has an older layout of ERR and does not know RSP_SETUP and RES, so these frames are only counted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.captures import rows_of
from tests.support.case_selection import long_after
from tests.support.dumpcap import Dumpcap
from tests.support.invoked_pair import Hosts
from tests.support.ports import free_port
from tests.support.tshark import number

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]
HOST = "127.0.0.1"
LOSS = {
    "udp_channel_incoming_interceptors": "loss",
    "udp_channel_transport_bindings_loss_args": "rate=0.1|seed=5",
    "term_buffer_length": 1 << 16,
}


def unicast(hosts: Hosts, port: int) -> None:
    subscription = hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}|cc=cubic", 1001)
    publication = hosts.near.add_publication(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    hosts.until(lambda: publication.is_connected and subscription.is_connected)
    hosts.deliver(publication, [subscription])


def multicast(hosts: Hosts, port: int) -> None:
    channel = f"aeron:udp?endpoint=224.20.30.39:{port}|interface=127.0.0.1"
    first, second = hosts.near.add_subscription(channel, 1001), hosts.far.add_subscription(channel, 1001)
    publication = hosts.near.add_publication(channel, 1001)
    hosts.until(lambda: publication.is_connected and first.is_connected and second.is_connected)
    hosts.deliver(publication, [first, second])


def dynamic(hosts: Hosts, port: int) -> None:
    control = f"control={HOST}:{port}|control-mode=dynamic"
    publication = hosts.near.add_publication(f"aeron:udp?{control}|fc=tagged,g:9/2", 1001)
    subscriptions = [
        hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port + n}|{control}|gtag=9", 1001) for n in (1, 2)
    ]
    hosts.until(lambda: publication.is_connected and all(each.is_connected for each in subscriptions))
    hosts.deliver(publication, subscriptions)


def manual(hosts: Hosts, port: int) -> None:
    publication = hosts.near.add_publication(f"aeron:udp?control={HOST}:{port}|control-mode=manual", 1001)
    subscription = hosts.far.add_subscription("aeron:udp?control-mode=manual", 1001)
    for n in (1, 2):
        subscription.add_destination(f"aeron:udp?endpoint={HOST}:{port + n}")
        publication.add_destination(f"aeron:udp?endpoint={HOST}:{port + n}")
    hosts.until(lambda: publication.is_connected and subscription.is_connected)
    hosts.deliver(publication, [subscription])


def response(hosts: Hosts, port: int) -> None:
    control = f"aeron:udp?control={HOST}:{port + 1}|control-mode=response"
    requests = hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    answers = hosts.near.add_subscription(control, 2002)
    channel = f"aeron:udp?endpoint={HOST}:{port}|response-correlation-id={answers.registration_id}"
    request = hosts.near.add_exclusive_publication(channel, 1001)
    hosts.until(lambda: requests.images and request.is_connected)
    number = requests.images[0].correlation_id
    answer = hosts.far.add_exclusive_publication(f"{control}|response-correlation-id={number}", 2002)
    hosts.until(lambda: answer.is_connected and answers.is_connected)
    # Each round takes about a dozen datagrams, and possibly none of them is lost.
    while not hosts.naks_sent():
        hosts.deliver(request, [requests], messages=80)
        hosts.deliver(answer, [answers], messages=80)


def rejected(hosts: Hosts, port: int) -> None:
    subscription = hosts.far.add_subscription(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    publication = hosts.near.add_publication(f"aeron:udp?endpoint={HOST}:{port}", 1001)
    hosts.until(lambda: publication.is_connected and subscription.images)
    hosts.deliver(publication, [subscription], messages=20)
    subscription.images[0].reject("salt water")
    hosts.until(lambda: not publication.is_connected)


MODES = [unicast, multicast, dynamic, manual, response, rejected]

# Our column and the dissector's field.
COMMON = {"flags": "flags", "session_id": "session_id", "stream_id": "stream_id", "frame_length": "frame_length"}
PLACE = {"term_id": "term_id", "term_offset": "term_offset"}
FIELDS = {
    "DATA": ("data", {**COMMON, **PLACE, "reserved_value": "reserved_value"}),
    "PAD": ("pad", {**COMMON, **PLACE}),
    "HEARTBEAT": ("heartbeat", {**COMMON, **PLACE}),
    "NAK": ("nak", {**COMMON, **PLACE, "nak_length": "length"}),
    "SM": (
        "sm",
        {
            **COMMON,
            "term_id": "consumption_term_id",
            "term_offset": "consumption_term_offset",
            "receiver_window": "receiver_window",
            "receiver_id": "receiver_id",
        },
    ),
    "RTTM": (
        "rtt",
        {
            **COMMON,
            "echo_timestamp": "echo_timestamp",
            "reception_delta": "reception_delta",
            "receiver_id": "receiver_id",
        },
    ),
    "SETUP": (
        "setup",
        {
            **COMMON,
            "term_id": "active_term_id",
            "term_offset": "term_offset",
            "initial_term_id": "initial_term_id",
            "term_length": "term_length",
            "mtu": "mtu",
            "ttl": "ttl",
        },
    ),
}
LAYERS = {layer: kind for kind, (layer, _) in FIELDS.items()}


def by_tshark(path: Path, ports: range) -> tuple[Counter[tuple[Any, ...]], Counter[int]]:
    """Return every frame that the dissector decodes, with its fields, and the payload bytes by packet."""
    command = ["tshark", "-r", str(path), "-T", "json", "--no-duplicate-keys"]
    for port in ports:
        command += ["-d", f"udp.port=={port},aeron"]
    packets = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    frames: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[int] = Counter()
    for packet in packets:
        layers = packet["_source"]["layers"]
        at = int(layers["frame"]["frame.number"])
        sizes[at] = int(layers["udp"]["udp.length"]) - 8
        known = layers.get("aeron")
        # For a frame that the dissector does not know, there is only a line of text.
        for name, found in known.items() if isinstance(known, dict) else ():
            layer = name.removeprefix("aeron.")
            if layer not in LAYERS:
                continue
            for each in found if isinstance(found, list) else [found]:
                kind = LAYERS[layer]
                values = {
                    column: number(each[f"aeron.{layer}.{field}"], column)
                    for column, field in FIELDS[kind][1].items()
                    if f"aeron.{layer}.{field}" in each
                }
                frames[at, kind, tuple(sorted(values.items()))] += 1
    return frames, sizes


def ours(rows: list[dict[str, Any]]) -> tuple[Counter[tuple[Any, ...]], Counter[int]]:
    frames: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[int] = Counter()
    for row in rows:
        kind = row["frame_type"]
        sizes[row["packet"]] = row["datagram_length"]
        if kind == "DATA" and row["frame_length"] == 0:
            kind = "HEARTBEAT"
        if kind in FIELDS:
            frames[row["packet"], kind, tuple(sorted((column, row[column]) for column in FIELDS[kind][1]))] += 1
    return frames, sizes


@pytest.mark.parametrize("mode", long_after(2, MODES), ids=lambda mode: mode.__name__)
def test_every_field_of_every_frame_is_what_tshark_shows(tmp_path: Path, mode: Callable[[Hosts, int], None]) -> None:
    port, path = free_port(), tmp_path / "capture.pcapng"
    settings = {**LOSS, "cubiccongestioncontrol_measurertt": True} if mode is unicast else LOSS
    with Dumpcap(path, f"udp portrange {port}-{port + 3}"), Hosts(**settings) as hosts:
        mode(hosts, port)
    rows = rows_of(path)
    assert rows == rows_of(path, aeron_ports=tuple(range(port, port + 4))), "what was guessed is not what there is"
    assert {row["protocol"] for row in rows} == {"aeron"}
    theirs, their_sizes = by_tshark(path, range(port, port + 4))
    mine, my_sizes = ours(rows)
    assert mine == theirs
    assert my_sizes == their_sizes
    kinds = Counter(row["frame_type"] for row in rows)
    assert {"DATA", "SETUP", "SM"} <= set(kinds)
    if mode is not rejected:
        assert kinds["NAK"] > 0
    if mode is unicast:
        assert kinds["RTTM"] > 0
    if mode is dynamic:
        assert {row.get("group_tag") for row in rows if row["frame_type"] == "SM"} == {9}
    if mode is response:
        assert kinds["RSP_SETUP"] > 0
    if mode is rejected:
        errors = [(row["error_code"], row["text"]) for row in rows if row["frame_type"] == "ERR"]
        assert set(errors) == {(13, "salt water")}
