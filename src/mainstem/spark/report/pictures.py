"""The charts of the whole and of each stream."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mainstem.spark.report import formatting, svg
from mainstem.spark.report.finding_facts import key_of
from mainstem.spark.report.svg import Series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.spark.report.finding_facts import Facts, RowDict, StreamKey, Timeline

CAUSES = {"receiver": "red", "network": "orange", "publisher": "blue", "unknown": "violet"}
CAUSE_NAMES = (
    ("held by the receiver's window", "red"),
    ("held by a loss under repair", "orange"),
    ("publisher had nothing to send", "blue"),
    ("cause not seen", "violet"),
)
PROTOCOLS = (("aeron", "blue"), ("bymux", "green"), ("jmux", "violet"), ("aqueduct", "red"))
MAX_LANES = 12


def _chart(title: str, picture: str) -> str:
    return f"<div><h3>{escape(title)}</h3>{picture}</div>"


def _bytes(value: float) -> str:
    return formatting.short(value)


def overall(facts: Facts) -> str:
    """The charts of everything that passed."""
    timeline = facts.timeline
    lines = [Series(f"{name}, on the wire", colour, timeline.rate(name), is_filled=True)
             for name, colour in PROTOCOLS if name in timeline.series]  # fmt: skip
    lines.append(Series("payload", "orange", timeline.rate("payload")))
    parts = [_chart("Throughput, bytes a second", svg.chart(timeline.seconds, lines, _bytes, title="Throughput"))]
    parts += _repairs(timeline)
    parts += _round_trips(timeline)
    if lanes := _lanes(facts, facts.longest_stalls):
        parts.append(_chart("Silences of publishers", lanes))
    return f'<section><h2>Timelines</h2><div class="charts">{"".join(parts)}</div></section>'


def of_stream(facts: Facts, key: StreamKey) -> str:
    """The charts of one stream."""
    timeline = facts.stream_timelines[key]
    lines = [Series("on the wire", "blue", timeline.rate("bytes"), is_filled=True),
             Series("payload", "orange", timeline.rate("payload"))]  # fmt: skip
    parts = [_chart("Throughput, bytes a second", svg.chart(timeline.seconds, lines, _bytes, title="Throughput"))]
    parts += _repairs(timeline)
    parts += _round_trips(timeline)
    own = [row for row in facts.longest_stalls if key_of(row) == key]
    if lanes := _lanes(facts, own):
        parts.append(_chart("Silences", lanes))
    return f'<div class="charts">{"".join(parts)}</div>'


def _repairs(timeline: Timeline) -> list[str]:
    if not any(timeline.get("naks")) and not any(timeline.get("retransmits")):
        return []
    lines = [Series("NAKs", "red", timeline.rate("naks")), Series("retransmits", "green", timeline.rate("retransmits"))]
    return [
        _chart(
            "NAKs and retransmits a second",
            svg.chart(timeline.seconds, lines, formatting.short, title="NAKs and retransmits"),
        )
    ]


def _round_trips(timeline: Timeline) -> list[str]:
    out = []
    for method, title in (("RTTM", "RTT by RTTM, ms"), ("NAK", "NAK to data, ms"), ("PING", "Ping to pong, ms")):
        if f"{method} slowest" not in timeline.series:
            continue
        lines = [
            Series("slowest", "orange", timeline.get(f"{method} slowest"), is_dots=True),
            Series("median of the slowest stream", "blue", timeline.get(f"{method} median"), is_dots=True),
        ]
        out.append(_chart(title, svg.chart(timeline.seconds, lines, formatting.short, title=title)))
    return out


def _lanes(facts: Facts, stalls: Sequence[RowDict]) -> str:
    """A lane for each stream that was silent, the longest first."""
    lanes: dict[StreamKey, list[tuple[float, float, str]]] = {}
    for row in stalls:
        begin = (row["start_ns"] - facts.first_ns) / 1e9
        lanes.setdefault(key_of(row), []).append((begin, begin + row["duration_ns"] / 1e9, CAUSES[row["cause"]]))
    if not lanes:
        return ""
    rows = [(str(key[1]), bars) for key, bars in list(lanes.items())[:MAX_LANES]]
    used = {colour for _, bars in rows for *_, colour in bars}
    names = [Series(name, colour, ()) for name, colour in CAUSE_NAMES if colour in used]
    return svg.spans(rows, 0.0, facts.duration_ns / 1e9, title="Silences of publishers", series=names)
