"""States the findings of an analysis in words: what was lost, where and why, what stalled the streams, and what else is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.analysis.page import formatting
from mainstem.analysis.summary import key_of

if TYPE_CHECKING:
    from mainstem.analysis.summary import RowDict, Summary

# A longer lost range was lost at once, by a buffer overrun rather than by chance.
BURST_BYTES = 8 * 1408
# Stalls below this fraction of the capture's duration are not mentioned.
NOTABLE_STALL = 0.01


def verdict(summary: Summary) -> list[str]:
    if not summary.packets and not summary.recordings:
        rest = " Name the ports with --aeron-ports, --bymux-ports or --jmux-ports." if summary.files else ""
        return [
            f"Nothing was recognized: no frame of Aeron, bymux, Jmux or Aqueduct was found.{rest}",
            *_problems(summary),
            *_passed_over(summary),
        ]
    return [
        *_loss(summary),
        *_stalls(summary),
        *_round_trips(summary),
        *_mux(summary),
        *_recordings(summary),
        *_problems(summary),
        *_passed_over(summary),
    ]


def is_bad(summary: Summary) -> bool:
    """Return whether data was lost for good, a request failed, or an input could not be read."""
    failed = any(row["outcome"] not in ("answered", "open") for row in summary.requests)
    return bool(summary.gap_sum(status="open") or summary.problem_counts or failed)


def name_of(row: RowDict) -> str:
    return f"stream {row['stream_id']} of session {row['session_id']} to {row['channel']}"


def _loss(summary: Summary) -> list[str]:
    if "aeron" not in summary.frames:
        return []
    lost = (
        summary.gap_sum()
        - summary.gap_sum(status="reordered")
        - summary.gap_sum(status="passed", place="in the capture")
    )
    streams = formatting.several(summary.sessions_count, "Aeron stream")
    if not lost:
        return [f"Nothing was lost on {streams}.", *_harmless(summary)]
    real = [row for row in summary.gaps if row["status"] != "reordered" and row["place"] != "in the capture"]
    amount = sum(row["bytes"] for row in real)
    sent = summary.totals.get("new_bytes", 0)
    out = [
        (
            f"{formatting.several(lost, 'range')} of {streams} {'was' if lost == 1 else 'were'} lost:"
            f" {formatting.size(amount)}, {formatting.share(amount, sent)} of what was sent. {_repaired(summary, lost)}"
        )
    ]
    out += [_where(real, place) for place in ("before the capture", "after the capture") if _of(real, place)]
    worst = max(real, key=lambda row: row["bytes"])
    if len({key_of(row) for row in real}) > 1:
        out.append(f"The most was lost on {name_of(worst)}: {formatting.size(worst['bytes'])}.")
    return [*out, *_harmless(summary)]


def _repaired(summary: Summary, lost: int) -> str:
    still, passed = summary.gap_sum(status="open"), summary.gap_sum(status="passed", place="before the capture")
    passed += summary.gap_sum(status="passed", place="after the capture")
    if not still and not passed:
        return "It was repaired." if lost == 1 else "All were repaired."
    parts = []
    if still:
        were = "was not" if still == 1 else "were not"
        parts.append(f"{formatting.count(still)} {were} repaired as far as the capture shows")
    if passed:
        parts.append(f"receivers went on past {formatting.count(passed)} without a repair that the capture saw")
    if lost > still + passed:
        parts.append(
            f"the other {formatting.count(lost - still - passed)} {'was' if lost - still - passed == 1 else 'were'} repaired"
        )
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def _of(rows: list[RowDict], place: str) -> list[RowDict]:
    return [row for row in rows if row["place"] == place]


def _where(rows: list[RowDict], place: str) -> str:
    rows = _of(rows, place)
    ranges, amount = sum(row["ranges"] for row in rows), sum(row["bytes"] for row in rows)
    which = (
        "between the publisher and the capture"
        if place == "before the capture"
        else "between the capture and the receiver, its socket buffer included"
    )
    largest = max(row["largest"] for row in rows)
    why = (
        f"up to {formatting.size(largest)} at a stroke, as when a buffer runs over"
        if largest > BURST_BYTES
        else "a datagram or a few at a time, as chance loses them"
    )
    slowest = max((row["slowest_ns"] or 0) for row in rows)
    repair = f"; the slowest repair took {formatting.duration(slowest)}" if slowest else ""
    return f"{formatting.several(ranges, 'range')} ({formatting.size(amount)}) went {which}, {why}{repair}."


def _harmless(summary: Summary) -> list[str]:
    out = []
    if late := summary.gap_sum(status="reordered"):
        out.append(
            f"{formatting.several(late, 'range')} came late without having been asked for: the network reordered datagrams."
        )
    if missed := summary.gap_sum(place="in the capture"):
        out.append(
            f"{formatting.several(missed, 'range')} {'is' if missed == 1 else 'are'} missing from the capture only: no receiver"
            " asked for them, and all went on. The capture dropped packets."
        )
    if again := summary.retransmits.get("duplicate"):
        out.append(f"{formatting.several(again, 'frame')} passed again without need.")
    return out


def _stalls(summary: Summary) -> list[str]:
    out = []
    for cause, sentence in (
        ("receiver", "Receivers held publishers back for {time} in all ({times}): their windows were full."),
        ("network", "Losses under repair held publishers back for {time} in all ({times})."),
    ):
        rows = [row for row in summary.stalls if row["cause"] == cause]
        held = sum(row["held_ns"] for row in rows)
        if not held or held < NOTABLE_STALL * summary.duration_ns:
            continue
        times = formatting.several(sum(row["times"] for row in rows), "time")
        worst = max(rows, key=lambda row: row["held_ns"])
        most = f" Most of it, {formatting.duration(worst['held_ns'])}, on {name_of(worst)}." if len(rows) > 1 else ""
        out.append(sentence.format(time=formatting.duration(held), times=times) + most)
    idle = [row for row in summary.stalls if row["cause"] in ("publisher", "unknown")]
    if not out and idle:
        total = sum(row["duration_ns"] for row in idle)
        out.append(
            f"No window held a publisher back for long; publishers had nothing to send for {formatting.duration(total)} in all."
        )
    elif not out and "aeron" in summary.frames:
        out.append("Nobody held a publisher back for long.")
    return out


_NAMES = {"aeron": "Aeron", "bymux": "bymux", "jmux": "Jmux"}


def _round_trips(summary: Summary) -> list[str]:
    names = {"RTTM": "RTT measurements", "NAK": "NAKs answered with data", "PING": "pings"}
    return [
        f"{formatting.count(row['n'])} {_NAMES[row['protocol']]} round trips ({names[row['method']]}): median"
        f" {formatting.duration(row['p50_ns'])}, 99 % within {formatting.duration(row['p99_ns'])}."
        for row in summary.rtt
    ]


def _mux(summary: Summary) -> list[str]:
    out = []
    answered = next((row["n"] for row in summary.requests if row["outcome"] == "answered"), 0)
    if summary.requests:
        latency = summary.request_latency
        out.append(
            f"{formatting.several(answered, 'Jmux request')} {'was' if answered == 1 else 'were'} answered"
            + (
                f": median {formatting.duration(latency['p50_ns'])}, 99 % within {formatting.duration(latency['p99_ns'])}."
                if answered
                else "."
            )
        )
        failed = [
            f"{formatting.count(row['n'])} {row['outcome']}"
            for row in summary.requests
            if row["outcome"] not in ("answered", "open")
        ]
        if failed:
            ran = sum(row["may_have_run"] or 0 for row in summary.requests)
            out.append(f"Requests failed: {', '.join(failed)}; {formatting.count(ran)} of them may have run.")
    for protocol in ("bymux", "jmux"):
        rows = [row for row in summary.mux if row["protocol"] == protocol]
        held = {side: sum(row[f"{side}_exhausted_ns"] for row in rows) for side in ("client", "server")}
        for side, time in held.items():
            if time >= NOTABLE_STALL * max(summary.duration_ns, 1):
                other = "server" if side == "client" else "client"
                out.append(
                    f"On {protocol}, the {side} had nothing left that it might write for {formatting.duration(time)},"
                    f" until the {other} granted more."
                )
        if lost := sum(row["streams"] for row in rows if row["status"] == "lost"):
            out.append(f"{formatting.several(lost, f'{_NAMES[protocol]} stream')} ended with the connection.")
    return out


def _recordings(summary: Summary) -> list[str]:
    if not summary.recordings:
        return []
    messages, amount = (sum(row[name] for row in summary.recordings) for name in ("messages", "data_bytes"))
    return [
        (
            f"{formatting.several(len(summary.recordings), 'recording')} with {formatting.several(messages, 'message')}"
            f" ({formatting.size(amount)}); what is recorded has no gaps."
        )
    ]


def problem(kind: str) -> str:
    names = {"ERR": "error of a receiver", "ERROR": "error of a peer", "RESET": "reset connection"}
    return names.get(kind, kind.lower().replace("_", " "))


def _problems(summary: Summary) -> list[str]:
    if not summary.problem_counts:
        return []
    kinds = ", ".join(f"{formatting.count(n)} × {problem(kind)}" for kind, n in summary.problem_counts.items())
    return [f"Problems: {kinds}."]


def _passed_over(summary: Summary) -> list[str]:
    if not summary.passed_over:
        return []
    reasons = "; ".join(f"{formatting.count(n)} {reason}" for reason, n in summary.passed_over.items())
    packets = formatting.several(sum(summary.passed_over.values()), "packet")
    return [f"Passed over, without a row of their own: {packets} ({reasons})."]
