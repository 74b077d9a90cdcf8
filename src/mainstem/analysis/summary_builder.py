"""Summarizes the tables with a few small queries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from mainstem.analysis.summary import RowDict, StreamKey, Summary, Timeline, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.analysis.options import Inputs


# -- the backend: this process, or Spark -------------------------------------------------------------------------------


class Backend(Protocol):
    """The backend that builds and queries the tables of an analysis: ``LocalTables`` or ``SparkTables``."""

    def write_frames(self, inputs: Inputs) -> None:
        """Write ``frames`` from captures and existing tables of frames."""

    def write_tables(self) -> None:
        """Write every other table made of frames, except ``problems``."""

    def write_recorded_sessions(self, paths: Sequence[str]) -> None:
        """Write ``recorded_sessions`` from directories of recordings."""

    def write_problems(self, *, frames: bool, recordings: Sequence[str]) -> None:
        """Write ``problems`` of the frames, if any, and of recordings."""

    def query(self, sql: str) -> list[RowDict]:
        """Return the rows of a query. ``{name}`` stands for a table, and ``{div}`` for integer division."""
        ...

    def run_all(self, jobs: Sequence[Callable[[], object]]) -> None: ...

    def close(self) -> None: ...


# Limits for the page. The tables are complete.
MAX_SESSIONS = 300
MAX_PAGES = 40
MAX_STALLS = 400
MAX_PROBLEMS = 50
BINS = 120
# The channel of frames sent to a multicast group whose data address the capture does not show.
UNKNOWN = "unknown"
# The columns that identify a stream.
KEY = "session_id, stream_id, channel"


def quantiles(column: str) -> str:
    shares = {"p50_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99}
    return ", ".join(f"percentile_approx({column}, {share}, 1000) as {name}" for name, share in shares.items())


class SummaryBuilder:
    def __init__(self, tables: Backend) -> None:
        self._tables = tables

    def query(self, sql: str) -> list[RowDict]:
        """Return the rows of a query with a small result. Drops ``time``, which JSON cannot hold, and replaces null channels."""
        rows = [{name: value for name, value in row.items() if name != "time"} for row in self._tables.query(sql)]
        for row in rows:
            if "channel" in row:
                row["channel"] = row["channel"] or UNKNOWN
        return rows

    def captures(self, summary: Summary) -> None:
        self._counts(summary)
        if not summary.packets:
            return
        self._streams(summary)
        parts = (self._losses, self._connections, self._timelines)
        self._tables.run_all([partial(part, summary) for part in parts])

    def _counts(self, summary: Summary) -> None:
        for row in self.query(
            "select protocol, frame_type, count(*) n, min(time_ns) first_ns, max(time_ns) last_ns,"
            " sum(if(frame_index = 0, 1, 0)) packets, sum(if(frame_index = 0, wire_length, 0)) wire,"
            " sum(if(frame_index = 0, coalesce(datagram_length, 0), 0)) datagrams, sum(coalesce(length, 0)) payload,"
            " sum(if(protocol = 'aeron' and type = 1 and frame_length = 0, 1, 0)) heartbeats"
            " from {frames} group by protocol, frame_type order by protocol, n desc, frame_type"
        ):
            if row["protocol"] == "problem":
                continue
            # A time may be 0: a device without a clock begins in 1970.
            summary.first_ns = min(summary.first_ns, row["first_ns"]) if summary.frames else row["first_ns"]
            summary.frames.setdefault(row["protocol"], {})[row["frame_type"]] = row["n"]
            summary.last_ns = max(summary.last_ns, row["last_ns"])
            if row["protocol"] != "tcp":
                summary.packets += row["packets"]
                summary.wire_bytes += row["wire"]
                summary.datagram_bytes += row["datagrams"]
                summary.payload_bytes += row["payload"]
                summary.heartbeats += row["heartbeats"]
        summary.files = self.query("select count(distinct file) n from {frames}")[0]["n"]

    def _streams(self, summary: Summary) -> None:
        names = ("naks", "nak_bytes", "status_messages", "retransmits", "retransmitted_bytes", "duplicates", "gaps",
                 "lost_bytes", "new_bytes", "messages", "setups")  # fmt: skip
        sums = ", ".join(f"coalesce(sum({name}), 0) {name}" for name in names)
        (summary.totals,) = self.query(f"select {sums} from {{sessions}}")
        (several,) = self.query(
            "select count(*) n from (select distinct session_id, stream_id from {sessions}) as each"
        )
        summary.sessions_count = several["n"]
        summary.sessions = self.query(
            "select * from {sessions} order by lost_bytes desc, receiver_stall_ns + network_stall_ns desc, wire_bytes desc,"
            f" session_id, stream_id, channel limit {MAX_SESSIONS}"
        )
        summary.channels = self.query(f"select * from {{channels}} order by wire_bytes desc limit {MAX_SESSIONS}")

    def _losses(self, summary: Summary) -> None:
        summary.gaps = self.query(
            f"select {KEY}, place, status, count(*) ranges, sum(length) bytes, sum(naks) naks, max(repair_ns) slowest_ns,"
            f" max(length) largest from {{gaps}} group by {KEY}, place, status"
            f" order by bytes desc, place, status, {KEY}"
        )
        counts = self.query("select reason, count(*) n from {retransmits} group by reason order by reason")
        summary.retransmits = {row["reason"]: row["n"] for row in counts}
        summary.rtt = self.query(
            f"select protocol, method, count(*) n, {quantiles('rtt_ns')}, max(rtt_ns) max_ns from {{rtt}}"
            " group by protocol, method order by protocol, method"
        )
        summary.stalls = self.query(
            f"select {KEY}, cause, count(*) times, sum(duration_ns) duration_ns, sum(held_ns) held_ns,"
            f" max(duration_ns) longest_ns from {{flow_control}} group by {KEY}, cause order by duration_ns desc, cause, {KEY}"
        )
        summary.longest_stalls = self.query(
            "select * from {flow_control} order by held_ns desc, duration_ns desc, start_ns, session_id, stream_id"
            f" limit {MAX_STALLS}"
        )

    def _connections(self, summary: Summary) -> None:
        summary.mux = self.query(
            "select protocol, status, count(*) streams, sum(bytes_from_client) bytes_from_client,"
            " sum(bytes_from_server) bytes_from_server, sum(grants) grants, sum(client_exhausted_ns) client_exhausted_ns,"
            " sum(server_exhausted_ns) server_exhausted_ns from {mux_streams} group by protocol, status order by 1, 2"
        )
        summary.requests = self.query(
            "select outcome, count(*) n, sum(cast(may_have_run as int)) may_have_run from {requests} group by outcome"
            " order by n desc, outcome"
        )
        (summary.request_latency,) = self.query(
            f"select count(*) n, {quantiles('latency_ns')}, max(latency_ns) max_ns from {{requests}}"
            " where latency_ns is not null"
        )
        summary.aqueduct = self.query(
            "select * from {aqueduct_channels} order by messages desc, file, channel_id limit 100"
        )

    def problems(self, summary: Summary) -> None:
        counts = self.query(
            "select kind, if(kind = 'PASSED_OVER', text, null) reason, count(*) n, sum(packets) packets from {problems}"
            " group by kind, reason order by packets desc, n desc, kind, reason"
        )
        summary.problem_counts = {row["kind"]: row["n"] for row in counts if row["reason"] is None}
        summary.passed_over = {row["reason"]: row["packets"] for row in counts if row["reason"] is not None}
        summary.problems = self.query(
            "select * from {problems} where kind <> 'PASSED_OVER'"
            f" order by time_ns, file, packet limit {MAX_PROBLEMS}"
        )

    def recordings(self, summary: Summary) -> None:
        summary.recordings = self.query("select * from {recorded_sessions} order by recording_id")
        firsts = [row["first_ns"] for row in summary.recordings if row["first_ns"]]
        if firsts and not summary.frames:
            summary.first_ns, summary.last_ns = min(firsts), max(row["last_ns"] or 0 for row in summary.recordings)

    def _timelines(self, summary: Summary) -> None:
        width = max(-(-summary.duration_ns // BINS), 1)
        bins = max(-(-summary.duration_ns // width), 1)
        empty = (summary.first_ns, width, bins)
        at = f"least((time_ns - {summary.first_ns}) {{div}} {width}, {bins - 1})"
        summary.timeline = Timeline(*empty)
        for row in self.query(
            f"select {at} bin, protocol, sum(if(frame_index = 0, wire_length, 0)) bytes, sum(coalesce(length, 0)) payload,"
            " sum(cast(protocol = 'aeron' and type = 2 as int)) naks from {frames}"
            " where protocol not in ('tcp', 'problem') group by 1, 2"
        ):
            _put(
                summary.timeline,
                row["bin"],
                {row["protocol"]: row["bytes"], "payload": row["payload"], "naks": row["naks"]},
            )
        chosen = [key_of(row) for row in summary.sessions[:MAX_PAGES]]
        summary.stream_timelines = {key: Timeline(*empty) for key in chosen}
        for row in self.query(
            f"select {KEY}, {at} bin, sum(if(frame_index = 0, wire_length, 0)) bytes, sum(if(type = 1, length, 0)) payload,"
            " sum(cast(type = 2 as int)) naks from {frames} where protocol = 'aeron' and channel is not null"
            f" group by {KEY}, {at}"
        ):
            _put_stream(summary, row, {name: row[name] for name in ("bytes", "payload", "naks")}, total=False)
        for row in self.query(
            f"select {KEY}, {at} bin, sum(if(reason like 'lost%', 1, 0)) retransmits, sum(if(reason like 'lost%', length, 0))"
            f" resent from {{retransmits}} group by {KEY}, {at}"
        ):
            _put_stream(summary, row, {name: row[name] for name in ("retransmits", "resent")}, total=True)
        self._round_trips(summary, at)

    def _round_trips(self, summary: Summary, at: str) -> None:
        for row in self.query(
            f"select {KEY}, method, {at} bin, percentile_approx(rtt_ns, 0.5, 1000) middle, max(rtt_ns) slowest from {{rtt}}"
            f" group by {KEY}, method, {at}"
        ):
            of_stream = summary.stream_timelines.get(key_of(row))
            for timeline in (summary.timeline, of_stream):
                if timeline is not None:
                    _put_max(timeline, row["bin"], f"{row['method']} median", row["middle"] / 1e6)
                    _put_max(timeline, row["bin"], f"{row['method']} slowest", row["slowest"] / 1e6)


def _put(timeline: Timeline, at: int, values: dict[str, float]) -> None:
    for name, value in values.items():
        series = timeline.series.setdefault(name, [0.0] * timeline.bins)
        series[at] = (series[at] or 0.0) + (value or 0)


def _put_max(timeline: Timeline, at: int, name: str, value: float) -> None:
    series = timeline.series.setdefault(name, [None] * timeline.bins)
    old = series[at]
    series[at] = value if old is None else max(old, value)


def _put_stream(summary: Summary, row: RowDict, values: dict[str, float], *, total: bool) -> None:
    key: StreamKey = key_of(row)
    if key in summary.stream_timelines:
        _put(summary.stream_timelines[key], row["bin"], values)
    if total:
        _put(summary.timeline, row["bin"], values)
