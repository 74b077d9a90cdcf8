"""The results of an analysis as a few numbers, from which the verdict, the page and the JSON are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RowDict = dict[str, Any]


@dataclass
class Timeline:
    """Series of values over time, with one value per bin of ``width_ns`` nanoseconds."""

    first_ns: int = 0
    width_ns: int = 1
    bins: int = 0
    series: dict[str, list[float | None]] = field(default_factory=dict)

    @property
    def seconds(self) -> list[float]:
        return [(index + 0.5) * self.width_ns / 1e9 for index in range(self.bins)]

    def get(self, name: str) -> list[float | None]:
        return self.series.get(name) or [0.0] * self.bins

    def rate(self, name: str) -> list[float | None]:
        return [None if value is None else value * 1e9 / self.width_ns for value in self.get(name)]


StreamKey = tuple[int, int, str]
"""Session id, stream id and channel."""


@dataclass
class Summary:
    """The data for the verdict and the page. Lists are limited to what a page can show, but counts are complete."""

    inputs: list[str] = field(default_factory=list)
    first_ns: int = 0
    last_ns: int = 0
    files: int = 0
    frames: dict[str, dict[str, int]] = field(default_factory=dict)
    heartbeats: int = 0
    packets: int = 0
    wire_bytes: int = 0
    datagram_bytes: int = 0
    payload_bytes: int = 0
    sessions_count: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    sessions: list[RowDict] = field(default_factory=list)
    channels: list[RowDict] = field(default_factory=list)
    gaps: list[RowDict] = field(default_factory=list)
    retransmits: dict[str, int] = field(default_factory=dict)
    rtt: list[RowDict] = field(default_factory=list)
    stalls: list[RowDict] = field(default_factory=list)
    longest_stalls: list[RowDict] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    stream_timelines: dict[StreamKey, Timeline] = field(default_factory=dict)
    mux: list[RowDict] = field(default_factory=list)
    requests: list[RowDict] = field(default_factory=list)
    request_latency: RowDict = field(default_factory=dict)
    aqueduct: list[RowDict] = field(default_factory=list)
    recordings: list[RowDict] = field(default_factory=list)
    problems: list[RowDict] = field(default_factory=list)
    problem_counts: dict[str, int] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)

    @property
    def duration_ns(self) -> int:
        return self.last_ns - self.first_ns

    def gap_sum(self, **where: str) -> int:
        """Add up lost ranges over the rows that match ``where``: a place, a status, a channel."""
        return sum(row["ranges"] for row in self.gaps if all(row[name] == value for name, value in where.items()))

    def of_stream(self, rows: list[RowDict], key: StreamKey) -> list[RowDict]:
        return [row for row in rows if key_of(row) == key]

    def as_json(self) -> RowDict:
        return {
            "inputs": self.inputs,
            "files": self.files,
            "seconds": self.duration_ns / 1e9,
            "frames": self.frames,
            "heartbeats": self.heartbeats,
            "packets": self.packets,
            "bytes": {"wire": self.wire_bytes, "datagrams": self.datagram_bytes, "payload": self.payload_bytes},
            "sessions": self.sessions_count,
            "naks": self.totals.get("naks", 0),
            "nak_bytes": self.totals.get("nak_bytes", 0),
            "lost": self.gap_groups(),
            "retransmits": self.retransmits,
            "rtt": self.rtt,
            "stalls": list(self.stall_groups()),
            "requests": self.request_latency | {"outcomes": self.requests},
            "mux_streams": self.mux,
            "recordings": self.recordings,
            "problems": self.problem_counts,
            "passed_over": self.passed_over,
        }

    def gap_groups(self) -> list[RowDict]:
        return _grouped(self.gaps, ("place", "status"), ("ranges", "bytes", "naks"))

    def stall_groups(self) -> list[RowDict]:
        return _grouped(self.stalls, ("cause",), ("times", "duration_ns", "held_ns"))


def key_of(row: RowDict) -> StreamKey:
    return row["session_id"], row["stream_id"], row["channel"]


def _grouped(rows: list[RowDict], by: tuple[str, ...], sums: tuple[str, ...]) -> list[RowDict]:
    groups: dict[tuple[Any, ...], RowDict] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        into = groups.setdefault(key, dict(zip(by, key, strict=True)) | dict.fromkeys(sums, 0))
        for name in sums:
            into[name] += row[name]
    return sorted(groups.values(), key=lambda row: -row[sums[0]])
