"""``report.html``: one file that needs nothing else, readable on a phone, light or dark."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mainstem.spark.report import formatting, pictures
from mainstem.spark.report.finding_facts import Facts, RowDict, key_of
from mainstem.spark.report.style import STYLE
from mainstem.spark.report.verdict import is_bad, problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title><link rel="icon" href="data:,">
<style>{style}</style></head>
<body><main>
<header><h1>{title}</h1><p>{lead}</p></header>
<section class="verdict {mood}"><h2>Verdict</h2><ul>{verdict}</ul></section>
{body}
<footer>Written by mainstem analyze. Every number here is in the tables beside this page.</footer>
</main></body></html>
"""


TEXTS = ("channel", "text", "what became of it")
"""Columns of texts, which may be long and wrap; numbers stay whole."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose rows become cards where the screen is narrow. Cells are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = ""
    for row in rows:
        cells = (_cell(name, cell) for name, cell in zip(head, row, strict=True))
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(name: str, cell: str) -> str:
    kind = ' class="text"' if name in TEXTS else ""
    return f'<td{kind} data-name="{escape(name, quote=True)}">{cell}</td>'


def facts_list(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    return (
        '<dl class="facts">'
        + "".join(f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>" for a, b in pairs)
        + "</dl>"
    )


def section(title: str, *content: str, lead: str = "") -> str:
    """A titled part of the page; nothing where it has no content."""
    inside = "".join(content)
    intro = f"<p>{escape(lead)}</p>" if lead else ""
    return f"<section><h2>{escape(title)}</h2>{intro}{inside}</section>" if inside else ""


def render(facts: Facts, verdict: list[str]) -> str:
    """The page."""
    names = ", ".join(path.rstrip("/").rpartition("/")[2] for path in facts.inputs[:3])
    more = f" and {len(facts.inputs) - 3} more" if len(facts.inputs) > 3 else ""
    lead = f"{formatting.moment(facts.first_ns)}, {formatting.duration(facts.duration_ns)}" if facts.first_ns else ""
    parts = [_overview(facts)]
    if facts.packets:
        parts += [pictures.overall(facts), _streams(facts), _channels(facts), _mux(facts), _aqueduct(facts)]
        parts += [_stream_page(facts, row) for row in facts.sessions if key_of(row) in facts.stream_timelines]
    parts += [_recordings(facts), _problems(facts)]
    return _PAGE.format(
        title=escape(f"{names}{more}"),
        style=STYLE,
        lead=escape(lead),
        mood="bad" if is_bad(facts) else "good",
        verdict="".join(f"<li>{escape(sentence)}</li>" for sentence in verdict),
        body="\n".join(filter(None, parts)),
    )


def _overview(facts: Facts) -> str:
    if not facts.packets:
        return ""
    counts = [
        (f"{protocol} {kind}", formatting.count(number))
        for protocol, kinds in facts.frames.items()
        if protocol != "problem"
        for kind, number in kinds.items()
    ]
    if facts.heartbeats:
        counts.append(("aeron heartbeats among DATA", formatting.count(facts.heartbeats)))
    general = [
        ("files", formatting.count(facts.files)),
        ("packets", formatting.count(facts.packets)),
        ("on the wire", formatting.size(facts.wire_bytes)),
        ("payload", formatting.size(facts.payload_bytes)),
        ("Aeron streams", formatting.count(facts.sessions_count)),
        ("mean rate", f"{formatting.size(facts.wire_bytes * 1e9 / max(facts.duration_ns, 1))}/s"),
    ]
    return section("What passed", facts_list(general), "<h3>Frames by type</h3>", facts_list(counts))


def anchor(row: RowDict) -> str:
    """The id of a stream's own part."""
    return f"s{row['session_id']}-{row['stream_id']}-" + "".join(c if c.isalnum() else "-" for c in row["channel"])


def _streams(facts: Facts) -> str:
    head = (
        "session",
        "stream",
        "channel",
        "data",
        "lost",
        "NAKs",
        "retransmits",
        "held by receiver",
        "held by network",
        "idle",
    )
    rows = []
    for row in facts.sessions:
        name = escape(str(row["session_id"]))
        if key_of(row) in facts.stream_timelines:
            name = f'<a href="#{anchor(row)}">{name}</a>'
        rows.append(
            (
                name, escape(str(row["stream_id"])), escape(row["channel"]), formatting.size(row["data_bytes"]),
                f"{formatting.count(row['gaps'])} ({formatting.size(row['lost_bytes'])})", formatting.count(row["naks"]),
                formatting.count(row["retransmits"]), formatting.duration(row["receiver_stall_ns"]),
                formatting.duration(row["network_stall_ns"]), formatting.duration(row["publisher_idle_ns"]),
            )
        )  # fmt: skip
    lead = f"The first {len(rows)}; the others are in the tables." if facts.sessions_count > len(rows) else ""
    return section("Streams", table(head, rows), lead=lead) if rows else ""


def _channels(facts: Facts) -> str:
    head = ("protocol", "channel", "sessions", "frames", "on the wire", "payload", "NAKs")
    rows = [
        (
            escape(row["protocol"]), escape(row["channel"]), formatting.count(row["sessions"]), formatting.count(row["frames"]),
            formatting.size(row["wire_bytes"]), formatting.size(row["data_bytes"]), formatting.count(row["naks"]),
        )
        for row in facts.channels
    ]  # fmt: skip
    return section("Channels", table(head, rows)) if rows else ""


def _stream_page(facts: Facts, row: RowDict) -> str:
    key = key_of(row)
    pairs = [
        ("publisher", row["publisher"] or "not seen"),
        ("receivers", formatting.count(row["receivers"])),
        ("first frame", formatting.moment(row["first_ns"])),
        ("lasted", formatting.duration(row["last_ns"] - row["first_ns"])),
        ("messages", formatting.count(row["messages"])),
        ("data", formatting.size(row["data_bytes"])),
        ("data frames", formatting.count(row["data_frames"])),
        ("heartbeats", formatting.count(row["heartbeats"])),
        ("NAKs", f"{formatting.count(row['naks'])} for {formatting.size(row['nak_bytes'])}"),
        ("retransmits", f"{formatting.count(row['retransmits'])}, {formatting.size(row['retransmitted_bytes'])}"),
        ("duplicates", formatting.count(row["duplicates"])),
        ("status messages", formatting.count(row["status_messages"])),
        ("term length", formatting.size(row["term_length"]) if row["term_length"] else "not known"),
        ("MTU", f"{row['mtu']} B" if row["mtu"] else "not known"),
        ("ended", "yes" if row["is_ended"] else "not in the capture"),
    ]
    lost = table(
        ("lost", "what became of it", "ranges", "bytes", "NAKs", "slowest repair"),
        [
            (
                escape(g["place"]), escape(g["status"]), formatting.count(g["ranges"]), formatting.size(g["bytes"]),
                formatting.count(g["naks"]), formatting.duration(g["slowest_ns"]) if g["slowest_ns"] else "–",
            )
            for g in facts.of_stream(facts.gaps, key)
        ],
    )  # fmt: skip
    stalls = table(
        ("cause", "times", "total", "held back", "longest"),
        [
            (escape(s["cause"]), formatting.count(s["times"]), formatting.duration(s["duration_ns"]),
             formatting.duration(s["held_ns"]),
             formatting.duration(s["longest_ns"]))
            for s in facts.of_stream(facts.stalls, key)
        ],
    )  # fmt: skip
    title = f"Stream {row['stream_id']}, session {row['session_id']}"
    inside = [facts_list(pairs), pictures.of_stream(facts, key)]
    if facts.of_stream(facts.gaps, key):
        inside += ["<h3>Losses</h3>", lost]
    if facts.of_stream(facts.stalls, key):
        inside += ["<h3>Silences</h3>", stalls]
    return (
        f"<section><details{' open' if len(facts.sessions) == 1 else ''}>"
        f"<summary><h2>{escape(title)}</h2><span>{escape(row['channel'])}</span></summary>"
        f'<div id="{anchor(row)}">{"".join(inside)}</div>'
        "</details></section>"
    )


def _mux(facts: Facts) -> str:
    streams = table(
        ("protocol", "status", "streams", "from client", "from server", "grants", "client held", "server held"),
        [
            (
                escape(r["protocol"]), escape(r["status"]), formatting.count(r["streams"]),
                formatting.size(r["bytes_from_client"]),
                formatting.size(r["bytes_from_server"]), formatting.count(r["grants"]),
                formatting.duration(r["client_exhausted_ns"]),
                formatting.duration(r["server_exhausted_ns"]),
            )
            for r in facts.mux
        ],
    )  # fmt: skip
    requests = table(
        ("outcome", "requests"), [(escape(r["outcome"]), formatting.count(r["n"])) for r in facts.requests]
    )
    out = section("Multiplexed streams", streams) if facts.mux else ""
    if facts.requests:
        latency = facts.request_latency
        pairs = [(name, formatting.duration(latency[key])) for name, key in _QUANTILES if latency.get(key) is not None]
        out += section(
            "Jmux requests", requests, "<h3>Latency</h3>" if pairs else "", facts_list(pairs) if pairs else ""
        )
    return out


_QUANTILES = (("median", "p50_ns"), ("90 % within", "p90_ns"), ("99 % within", "p99_ns"), ("slowest", "max_ns"))


def _aqueduct(facts: Facts) -> str:
    rows = [
        (str(r["channel_id"]), escape(r["direction"]), escape(r["minted_by"]), formatting.count(r["messages"]),
         formatting.size(r["message_bytes"]), escape(r["status"]))
        for r in facts.aqueduct
    ]  # fmt: skip
    head = ("channel", "direction", "minted by", "messages", "payload", "status")
    return section("Aqueduct channels", table(head, rows)) if rows else ""


def _recordings(facts: Facts) -> str:
    rows = [
        (
            str(r["recording_id"]), str(r["session_id"]), str(r["stream_id"]), formatting.count(r["messages"]),
            formatting.size(r["data_bytes"]), formatting.count(r["end_position"]), formatting.moment(r["first_ns"]),
            formatting.duration(r["last_ns"] - r["first_ns"]),
        )
        for r in facts.recordings
    ]  # fmt: skip
    head = ("recording", "session", "stream", "messages", "payload", "end position", "from", "lasted")
    return section("Recordings", table(head, rows)) if rows else ""


def _problems(facts: Facts) -> str:
    rows = [
        (
            escape(problem(r["kind"])), escape((r["file"] or "").rpartition("/")[2] or "–"),
            str(r["packet"] or (f"position {r['position']}" if r["position"] is not None else "–")), escape(r["text"] or "–"),
        )
        for r in facts.problems
    ]  # fmt: skip
    more = sum(facts.problem_counts.values()) - len(rows)
    lead = f"The first {len(rows)}; {formatting.count(more)} more are in the tables." if more > 0 else ""
    return section("Problems", table(("what", "file", "packet", "text"), rows), lead=lead) if rows else ""
