"""The charts of the whole analysis and of each stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.analysis.page import formatting, svg
from mainstem.analysis.page.html import figure, figures, section
from mainstem.analysis.page.svg import Series
from mainstem.analysis.summary import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainstem.analysis.summary import RowDict, StreamKey, Summary, Timeline

CAUSES = {"receiver": "red", "network": "orange", "publisher": "blue", "unknown": "violet"}
CAUSE_NAMES = (
    ("held by the receiver's window", "red"),
    ("held by a loss under repair", "orange"),
    ("publisher had nothing to send", "blue"),
    ("cause not seen", "violet"),
)
PROTOCOLS = (("aeron", "blue"), ("bymux", "green"), ("jmux", "violet"), ("aqueduct", "red"))
MAX_LANES = 12


def overall(summary: Summary) -> str:
    timeline = summary.timeline
    lines = [Series(f"{name}, on the wire", color, timeline.rate(name), is_filled=True)
             for name, color in PROTOCOLS if name in timeline.series]  # fmt: skip
    lines.append(Series("payload", "orange", timeline.rate("payload")))
    parts = _figures(timeline, lines)
    if lanes := _lanes(summary, summary.longest_stalls):
        parts.append(figure("Silences of publishers", lanes))
    return section("Timelines", figures(parts))


def of_stream(summary: Summary, key: StreamKey) -> str:
    timeline = summary.stream_timelines[key]
    lines = [Series("on the wire", "blue", timeline.rate("bytes"), is_filled=True),
             Series("payload", "orange", timeline.rate("payload"))]  # fmt: skip
    parts = _figures(timeline, lines)
    own = [row for row in summary.longest_stalls if key_of(row) == key]
    if lanes := _lanes(summary, own):
        parts.append(figure("Silences", lanes))
    return figures(parts)


def _figures(timeline: Timeline, throughput: Sequence[Series]) -> list[str]:
    """Draw the charts of throughput, of repairs if there were any, and of each kind of round trip."""

    def chart(title: str, lines: Sequence[Series], label: str = "") -> str:
        return figure(title, svg.chart(timeline.seconds, lines, formatting.short, title=label or title))

    out = [chart("Throughput, bytes a second", throughput, "Throughput")]
    if any(timeline.get("naks")) or any(timeline.get("retransmits")):
        naks, retransmits = timeline.rate("naks"), timeline.rate("retransmits")
        lines = [Series("NAKs", "red", naks), Series("retransmits", "green", retransmits)]
        out.append(chart("NAKs and retransmits a second", lines, "NAKs and retransmits"))
    for method, title in (("RTTM", "RTT by RTTM, ms"), ("NAK", "NAK to data, ms"), ("PING", "Ping to pong, ms")):
        if f"{method} slowest" not in timeline.series:
            continue
        lines = [
            Series("slowest", "orange", timeline.get(f"{method} slowest"), is_dots=True),
            Series("median of the slowest stream", "blue", timeline.get(f"{method} median"), is_dots=True),
        ]
        out.append(chart(title, lines))
    return out


def _lanes(summary: Summary, stalls: Sequence[RowDict]) -> str:
    """Draw a lane for each stream that stalled, the longest stall first."""
    lanes: dict[StreamKey, list[tuple[float, float, str]]] = {}
    for row in stalls:
        start = (row["start_ns"] - summary.first_ns) / 1e9
        lanes.setdefault(key_of(row), []).append((start, start + row["duration_ns"] / 1e9, CAUSES[row["cause"]]))
    if not lanes:
        return ""
    rows = [(str(key[1]), bars) for key, bars in list(lanes.items())[:MAX_LANES]]
    used = {color for _, bars in rows for *_, color in bars}
    names = [Series(name, color, ()) for name, color in CAUSE_NAMES if color in used]
    return svg.spans(rows, 0.0, summary.duration_ns / 1e9, title="Silences of publishers", series=names)
