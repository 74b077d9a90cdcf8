"""Repaired loss before a capture, after it, and on both sides: how the fold classifies it, compared with what tshark shows.

The path has two lossy relays with the capture between them. A capture of the whole path shows what entered and left each relay, so
the ground truth needs no knowledge of the relays. A frame was lost *before* the capture if it passed there only after it was sent
again, and *after* it if it passed but reached the receiver only on the second pass or later.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.captures import rows_of
from tests.support.dumpcap import Dumpcap
from tests.support.tshark import number
from tests.support.waiting import STALL_S
from tests.unit.analysis.folds.folding import events_of_wire, run

from mainstem.analysis.folds.path import PathFold

if TYPE_CHECKING:
    from tests.interop.conftest import DriverFactory, PeerFactory

pytestmark = [
    pytest.mark.long,
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]
RELAY = Path(__file__).parent / "relay.py"
ONE_WAY_MS = 2
MESSAGES = 1_000
LOSS = {"before": (0.04, 0.0), "after": (0.0, 0.04), "on both sides": (0.04, 0.04), "nowhere": (0.0, 0.0)}
# A window small enough that no socket overflows and that a PAD at its edge is not an overrun (docs/protocols/aeron.md, 15.3).
WINDOW, TERM = "rcv-wnd=64k", "term-length=512k"
CASES = [
    *((where, ("mainstem", "mainstem")) for where in LOSS),
    ("on both sides", ("mainstem", "reference")),
]


@dataclass
class Way:
    """A capture of the whole path, as tshark shows it. ``passed``: when each frame entered each of the three sections."""

    passed: list[dict[tuple[int, int], list[int]]] = field(
        default_factory=lambda: [defaultdict(list) for _ in range(3)]
    )
    naks: list[tuple[int, int]] = field(default_factory=list)  # the ones that passed the capture

    @property
    def frames(self) -> set[tuple[int, int]]:
        return set(self.passed[0])

    def lost_before(self) -> set[tuple[int, int]]:
        """Return the frames whose first transmission did not reach the capture."""
        sent, seen, _ = self.passed
        return {frame for frame in self.frames if len(sent[frame]) > 1 and seen[frame][0] > sent[frame][1]}

    def lost_after(self) -> set[tuple[int, int]]:
        """Return the frames whose first copy in the capture did not reach the receiver."""
        _, seen, arrived = self.passed
        return {frame for frame in self.frames if len(seen[frame]) > 1 and arrived[frame][0] > seen[frame][1]}

    def ever_lost_after(self) -> set[tuple[int, int]]:
        return {frame for frame in self.frames if len(self.passed[1][frame]) > len(self.passed[2][frame])}


def fields(path: Path, port: int, *names: str) -> list[list[str]]:
    command = ["tshark", "-r", str(path), "-T", "fields", "-E", "aggregator=;", "-E", "separator=/t"]
    for at in range(port, port + 3):
        command += ["-d", f"udp.port=={at},aeron"]
    for name in names:
        command += ["-e", name]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split("\t") for line in lines]


def by_tshark(path: Path, port: int, term_length: int, base_term: int) -> Way:
    """Return the frames and NAKs in the capture, by position."""
    way = Way()
    kinds = {"data": "frame_length", "pad": "frame_length", "nak": "length"}
    names = [f"aeron.{kind}.{name}" for kind, size in kinds.items() for name in ("term_id", "term_offset", size)]
    for time, source, to, *values in fields(path, port, "frame.time_epoch", "udp.srcport", "udp.dstport", *names):
        seconds, part = time.split(".")
        time_ns = int(seconds) * 1_000_000_000 + int(part.ljust(9, "0"))
        for kind, at in (("data", 0), ("pad", 3), ("nak", 6)):
            columns = [text.split(";") if text else [] for text in values[at : at + 3]]
            for term, offset, length in zip(*columns, strict=True):
                terms = number(term, "term_id") - base_term
                start = terms * term_length + int(offset, 0)
                span = (start, start + (int(length, 0) + 31 & ~31))
                if kind != "nak" and span[0] < span[1]:
                    way.passed[int(to) - port][span].append(time_ns)
                elif kind == "nak" and int(source) == port + 1:
                    way.naks.append(span)
    return way


def capture(
    directory: Path, port: int, ends: tuple[str, str], loss: tuple[float, float], start_driver: Any, start_peer: Any
) -> Path:
    """Send a stream across the two relays, and capture all of it."""
    near, far = start_driver(ends[0]), start_driver(ends[1])
    path = directory / "way.pcapng"
    relays = []
    try:
        with Dumpcap(path, f"udp portrange {port}-{port + 2}"):
            for side, rate in enumerate(loss):
                numbers = (str(port + side), str(port + side + 1), str(ONE_WAY_MS), str(rate), str(7 + side))
                relay = subprocess.Popen(
                    [sys.executable, str(RELAY), *numbers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                relays.append(relay)
                assert relay.stdout is not None
                assert relay.stdout.readline() == "ready\n"
            subscriber = start_peer(
                "mainstem", "sub", far, f"aeron:udp?endpoint=127.0.0.1:{port + 2}|{WINDOW}", count=MESSAGES, to_end=True
            )
            subscriber.wait_for("ready")
            publisher = start_peer(
                "mainstem", "pub", near, f"aeron:udp?endpoint=127.0.0.1:{port}|{TERM}", count=MESSAGES
            )
            publisher.wait_for("ready")
            assert publisher.result()["sent"] == MESSAGES
            facts = subscriber.result()
            assert (facts["count"], facts["fault"]) == (MESSAGES, "")
    finally:
        for relay in relays:
            relay.communicate("\n", timeout=STALL_S)
    return path


def covered(frames: set[tuple[int, int]], gaps: list[dict[str, Any]], place: str) -> set[tuple[int, int]]:
    """Return the frames within gaps at this place of the path."""
    ranges = [(gap["position"], gap["end_position"]) for gap in gaps if gap["place"] == place]
    return {frame for frame in frames if any(low < frame[1] and frame[0] < high for low, high in ranges)}


@pytest.mark.parametrize(("where", "ends"), CASES)
def test_loss_and_repair_match_tshark(
    tmp_path: Path, port: int, ends: tuple[str, str], where: str, start_driver: DriverFactory, start_peer: PeerFactory
) -> None:
    whole = capture(tmp_path, port, ends, LOSS[where], start_driver, start_peer)
    tap = tmp_path / "tap.pcapng"
    command = ["tshark", "-r", str(whole), "-Y", f"udp.port=={port + 1}", "-w", str(tap)]
    subprocess.run(command, check=True, capture_output=True)
    rows = rows_of(tap)
    assert {row["protocol"] for row in rows} == {"aeron"}
    setup = next(row for row in rows if row["frame_type"] == "SETUP")
    way = by_tshark(whole, port, setup["term_length"], setup["initial_term_id"])
    table: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in run(PathFold(), events_of_wire(SimpleNamespace(rows=rows)), []):  # type: ignore[arg-type]
        table[row.kind].append(row.values)
    gaps, (session,) = table["gaps"], table["sessions"]

    # Where each frame was lost.
    assert covered(way.frames, gaps, "before the capture") == way.lost_before()
    after = covered(way.frames, gaps, "after the capture")
    # A NAK that crosses the repair of a loss before the capture may request that frame once more.
    assert way.lost_after() - way.lost_before() <= after <= way.ever_lost_after() | way.lost_before()
    assert not covered(way.frames, gaps, "in the capture")
    assert bool(way.lost_before()) == bool(LOSS[where][0])
    assert bool(way.ever_lost_after()) == bool(LOSS[where][1])

    # Everything lost was requested and repaired, at the right time.
    repaired = [gap for gap in gaps if gap["status"] == "repaired"]
    for gap in gaps:
        # A NAK that crossed the last repair requests frames that do not pass again.
        crossed = covered(way.frames, [gap], "after the capture") or way.frames
        assert gap in repaired or crossed <= covered(way.frames, repaired, "before the capture") | covered(
            way.frames, repaired, "after the capture"
        )
    for gap in repaired:
        inside = [frame for frame in way.frames if gap["position"] < frame[1] and frame[0] < gap["end_position"]]
        again = [next(time for time in way.passed[1][frame] if time > gap["noticed_ns"]) for frame in inside]
        assert gap["repaired_ns"] == max(again)
        assert gap["length"] == sum(end - start for start, end in inside)

    # What was requested, and what was sent again in response.
    assert session["naks"] == len(way.naks)
    for gap in gaps:
        asking = [nak for nak in way.naks if nak[0] < gap["end_position"] and gap["position"] < nak[1]]
        assert 0 < gap["naks"] <= len(asking)
    passages = sum(len(times) for times in way.passed[1].values())
    again = table["retransmits"]
    assert session["retransmits"] + session["duplicates"] == len(again)
    assert passages - len(way.frames) <= len(again) <= passages - len(way.frames) + len(way.lost_before())
    for row in again:
        frame = next(frame for frame in way.frames if frame[0] == row["position"])
        times = way.passed[1][frame]
        if row["reason"] == "lost before":
            assert frame in way.lost_before()
        else:
            assert row["time_ns"] in times[1:]
            # A repair that is sent again while the first one is in flight looks like a repair that was lost.
            assert row["reason"] == "duplicate" or frame in way.ever_lost_after() | way.lost_before()
    if where == "on both sides" and importlib.util.find_spec("pyspark"):
        assert_analyzed(tap, gaps, len(way.naks))


def assert_analyzed(tap: Path, gaps: list[dict[str, Any]], naks: int) -> None:
    """Check that ``mainstem analyze`` reports the same for the capture."""
    command = [sys.executable, "-m", "mainstem", "analyze", str(tap), "--out", str(tap.parent / "out"), "--json"]
    summary = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert summary["naks"] == naks
    lost = {(row["place"], row["status"]): (row["ranges"], row["bytes"]) for row in summary["lost"]}
    expected: dict[tuple[str, str], tuple[int, int]] = {}
    for gap in gaps:
        ranges, size = expected.get((gap["place"], gap["status"]), (0, 0))
        expected[gap["place"], gap["status"]] = (ranges + 1, size + gap["length"])
    assert lost == expected
    assert "were lost" in summary["verdict"][0]
