"""The page of an analysis: an overview with charts, and a section for each stream."""

from __future__ import annotations

from html import escape

from mainstem.analysis.page import charts, formatting
from mainstem.analysis.page.html import document, pairs, section, table
from mainstem.analysis.summary import RowDict, Summary, key_of
from mainstem.analysis.verdict import is_bad, problem


def render(summary: Summary, verdict: list[str]) -> str:
    names = ", ".join(path.rstrip("/").rpartition("/")[2] for path in summary.inputs[:3])
    more = f" and {len(summary.inputs) - 3} more" if len(summary.inputs) > 3 else ""
    lead = (
        f"{formatting.moment(summary.first_ns)}, {formatting.duration(summary.duration_ns)}"
        if summary.frames or summary.first_ns
        else ""
    )
    parts = [_overview(summary)]
    if summary.packets:
        parts += [charts.overall(summary), _streams(summary), _channels(summary), _mux(summary), _aqueduct(summary)]
        parts += [_stream_page(summary, row) for row in summary.sessions if key_of(row) in summary.stream_timelines]
    parts += [_recordings(summary), _problems(summary)]
    footer = "Written by mainstem analyze. Every number here is in the tables beside this page."
    return document(f"{names}{more}", lead, verdict, parts, is_bad=is_bad(summary), footer=footer)


def _overview(summary: Summary) -> str:
    if not summary.packets:
        return ""
    counts = [
        (f"{protocol} {kind}", formatting.count(number))
        for protocol, kinds in summary.frames.items()
        if protocol != "problem"
        for kind, number in kinds.items()
    ]
    if summary.heartbeats:
        counts.append(("aeron heartbeats among DATA", formatting.count(summary.heartbeats)))
    general = [
        ("files", formatting.count(summary.files)),
        ("packets", formatting.count(summary.packets)),
        ("on the wire", formatting.size(summary.wire_bytes)),
        ("payload", formatting.size(summary.payload_bytes)),
        ("Aeron streams", formatting.count(summary.sessions_count)),
        ("mean rate", f"{formatting.size(summary.wire_bytes * 1e9 / max(summary.duration_ns, 1))}/s"),
    ]
    return section("What passed", pairs(general), "<h3>Frames by type</h3>", pairs(counts))


def anchor(row: RowDict) -> str:
    return f"s{row['session_id']}-{row['stream_id']}-" + "".join(c if c.isalnum() else "-" for c in row["channel"])


def _streams(summary: Summary) -> str:
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
    for row in summary.sessions:
        name = escape(str(row["session_id"]))
        if key_of(row) in summary.stream_timelines:
            name = f'<a href="#{anchor(row)}">{name}</a>'
        rows.append(
            (
                name, escape(str(row["stream_id"])), escape(row["channel"]), formatting.size(row["data_bytes"]),
                f"{formatting.count(row['gaps'])} ({formatting.size(row['lost_bytes'])})", formatting.count(row["naks"]),
                formatting.count(row["retransmits"]), formatting.duration(row["receiver_stall_ns"]),
                formatting.duration(row["network_stall_ns"]), formatting.duration(row["publisher_idle_ns"]),
            )
        )  # fmt: skip
    lead = f"The first {len(rows)}; the others are in the tables." if summary.sessions_count > len(rows) else ""
    return section("Streams", table(head, rows), lead=lead) if rows else ""


def _channels(summary: Summary) -> str:
    head = ("protocol", "channel", "sessions", "frames", "on the wire", "payload", "NAKs")
    rows = [
        (
            escape(row["protocol"]), escape(row["channel"]), formatting.count(row["sessions"]), formatting.count(row["frames"]),
            formatting.size(row["wire_bytes"]), formatting.size(row["data_bytes"]), formatting.count(row["naks"]),
        )
        for row in summary.channels
    ]  # fmt: skip
    return section("Channels", table(head, rows)) if rows else ""


def _stream_page(summary: Summary, row: RowDict) -> str:
    key = key_of(row)
    values = [
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
            for g in summary.of_stream(summary.gaps, key)
        ],
    )  # fmt: skip
    stalls = table(
        ("cause", "times", "total", "held back", "longest"),
        [
            (escape(s["cause"]), formatting.count(s["times"]), formatting.duration(s["duration_ns"]),
             formatting.duration(s["held_ns"]),
             formatting.duration(s["longest_ns"]))
            for s in summary.of_stream(summary.stalls, key)
        ],
    )  # fmt: skip
    title = f"Stream {row['stream_id']}, session {row['session_id']}"
    inside = [pairs(values), charts.of_stream(summary, key)]
    if summary.of_stream(summary.gaps, key):
        inside += ["<h3>Losses</h3>", lost]
    if summary.of_stream(summary.stalls, key):
        inside += ["<h3>Silences</h3>", stalls]
    return (
        f"<section><details{' open' if len(summary.sessions) == 1 else ''}>"
        f"<summary><h2>{escape(title)}</h2><span>{escape(row['channel'])}</span></summary>"
        f'<div id="{anchor(row)}">{"".join(inside)}</div>'
        "</details></section>"
    )


def _mux(summary: Summary) -> str:
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
            for r in summary.mux
        ],
    )  # fmt: skip
    requests = table(
        ("outcome", "requests"), [(escape(r["outcome"]), formatting.count(r["n"])) for r in summary.requests]
    )
    out = section("Multiplexed streams", streams) if summary.mux else ""
    if summary.requests:
        latency = summary.request_latency
        values = [(name, formatting.duration(latency[key])) for name, key in _QUANTILES if latency.get(key) is not None]
        out += section("Jmux requests", requests, "<h3>Latency</h3>" if values else "", pairs(values) if values else "")
    return out


_QUANTILES = (("median", "p50_ns"), ("90 % within", "p90_ns"), ("99 % within", "p99_ns"), ("slowest", "max_ns"))


def _aqueduct(summary: Summary) -> str:
    rows = [
        (str(r["channel_id"]), escape(r["direction"]), escape(r["minted_by"]), formatting.count(r["messages"]),
         formatting.size(r["message_bytes"]), escape(r["status"]))
        for r in summary.aqueduct
    ]  # fmt: skip
    head = ("channel", "direction", "minted by", "messages", "payload", "status")
    return section("Aqueduct channels", table(head, rows)) if rows else ""


def _recordings(summary: Summary) -> str:
    rows = [
        (
            str(r["recording_id"]), str(r["session_id"]), str(r["stream_id"]), formatting.count(r["messages"]),
            formatting.size(r["data_bytes"]), formatting.count(r["end_position"]), _moment(r["first_ns"]),
            formatting.duration((r["last_ns"] or 0) - (r["first_ns"] or 0)),
        )
        for r in summary.recordings
    ]  # fmt: skip
    head = ("recording", "session", "stream", "messages", "payload", "end position", "from", "lasted")
    return section("Recordings", table(head, rows)) if rows else ""


def _moment(time_ns: int | None) -> str:
    return "not known" if time_ns is None else formatting.moment(time_ns)


def _problems(summary: Summary) -> str:
    rows = [
        (
            escape(problem(r["kind"])), escape((r["file"] or "").rpartition("/")[2] or "–"),
            str(r["packet"] or (f"position {r['position']}" if r["position"] is not None else "–")), escape(r["text"] or "–"),
        )
        for r in summary.problems
    ]  # fmt: skip
    more = sum(summary.problem_counts.values()) - len(rows)
    lead = f"The first {len(rows)}; {formatting.count(more)} more are in the tables." if more > 0 else ""
    return section("Problems", table(("what", "file", "packet", "text"), rows), lead=lead) if rows else ""
