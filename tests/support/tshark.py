"""Aeron frames that tshark decodes from a capture of the loopback interface."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from tests.support.dumpcap import Dumpcap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PORTS = 4  # the first port and the next three


class Capture(Dumpcap):
    """Captures the datagrams of a few ports on the loopback interface, during the ``with`` block."""

    def __init__(self, path: Path, port: int) -> None:
        super().__init__(path, f"udp portrange {port}-{port + PORTS - 1}")
        self._port = port

    def count(self, kind: int) -> int:
        """Return how many datagrams begin with a frame of that type, whether or not the dissector knows the type."""
        command = ["tshark", "-r", str(self._path), "-Y", _begins_with(kind), "-T", "fields", "-e", "frame.number"]
        return len(subprocess.run(command, capture_output=True, check=True).stdout.split())

    def frames(self, *, without: Sequence[int] = ()) -> list[tuple[str, str]]:
        """Return the dissector's name and error for every Aeron frame; skip types that it does not know."""
        ports = range(self._port, self._port + PORTS)
        decode = [word for port in ports for word in ("-d", f"udp.port=={port},aeron")]
        command = ["tshark", "-r", str(self._path), *decode, "-T", "json"]
        if without:
            command += ["-Y", " and ".join(f"not {_begins_with(kind)}" for kind in without)]
        output = subprocess.run([*command, "--no-duplicate-keys"], capture_output=True, check=True).stdout
        found = []
        for packet in json.loads(output):
            layers = packet["_source"]["layers"]
            if "_ws.malformed" in layers or "aeron" not in layers:
                found.append(("?", f"not decoded: {sorted(layers)}"))
                continue
            # A datagram with several frames has several layers.
            for layer in layers["aeron"] if isinstance(layers["aeron"], list) else [layers["aeron"]]:
                for name, value in layer.items():
                    found += [(name, _expert(each)) for each in (value if isinstance(value, list) else [value])]
        return found


def _begins_with(kind: int) -> str:
    return f"udp.payload[6:2] == {kind & 0xFF:02x}:{kind >> 8:02x}"


def _expert(value: Any) -> str:
    """Return the first expert message that is an error."""
    if isinstance(value, dict):
        if value.get("_ws.expert.severity") in ("0x00800000", "8388608"):
            return str(value.get("_ws.expert.message", "error"))
        return next(filter(None, map(_expert, value.values())), "")
    if isinstance(value, list):
        return next(filter(None, map(_expert, value)), "")
    return ""


WIDE = {"receiver_id", "echo_timestamp", "reception_delta", "reserved_value"}


def number(text: str, column: str) -> int:
    """Return a field's value; the dissector shows some 32- and 64-bit fields as unsigned, others as signed."""
    value = int(text, 0)
    bits = 64 if column in WIDE else 32
    return value - (1 << bits) if value >= 1 << (bits - 1) else value
