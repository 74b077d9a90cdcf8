"""From tables to the few numbers that are told: a handful of small queries over what was written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.spark.report.finding_facts import Facts, RowDict, StreamKey, Timeline, key_of
from mainstem.spark.report.jobs import side_by_side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What a page can show: more lines than these are in the tables.
MAX_SESSIONS = 300
MAX_PAGES = 40
MAX_STALLS = 400
MAX_PROBLEMS = 50
BINS = 120
QUANTILES = "percentile_approx({0}, array(0.5, 0.9, 0.99), 1000)"


def rows_of(query: DataFrame) -> list[RowDict]:
    """The rows of a small result; of an instant only the nanoseconds, which JSON can say."""
    return [{name: value for name, value in row.asDict().items() if name != "time"} for row in query.collect()]


class Gatherer:
    """Reads the tables of one analysis, which are views of the session named ``prefix + name``."""

    def __init__(self, spark: SparkSession, prefix: str) -> None:
        self._spark, self._prefix = spark, prefix

    def query(self, sql: str) -> list[RowDict]:
        """A query in which ``{name}`` is a table."""
        names = _Names(self._prefix)
        return rows_of(self._spark.sql(sql.format_map(names)))

    def captures(self, facts: Facts) -> None:
        """Everything about captures."""
        self._counts(facts)
        if not facts.packets:
            return
        self._streams(facts)
        parts = (self._losses, self._connections, self._timelines)
        side_by_side(self._spark, [partial(part, facts) for part in parts])

    def _counts(self, facts: Facts) -> None:
        for row in self.query(
            "select protocol, frame_type, count(*) n, min(time_ns) first_ns, max(time_ns) last_ns,"
            " sum(if(frame_index = 0, 1, 0)) packets, sum(if(frame_index = 0, wire_length, 0)) wire,"
            " sum(if(frame_index = 0, coalesce(datagram_length, 0), 0)) datagrams, sum(coalesce(length, 0)) payload,"
            " sum(if(protocol = 'aeron' and type = 1 and frame_length = 0, 1, 0)) heartbeats"
            " from {frames} group by protocol, frame_type order by protocol, n desc, frame_type"
        ):
            if row["protocol"] == "problem":
                continue
            facts.frames.setdefault(row["protocol"], {})[row["frame_type"]] = row["n"]
            facts.first_ns = min(filter(None, (facts.first_ns, row["first_ns"])))
            facts.last_ns = max(facts.last_ns, row["last_ns"])
            if row["protocol"] != "tcp":
                facts.packets += row["packets"]
                facts.wire_bytes += row["wire"]
                facts.datagram_bytes += row["datagrams"]
                facts.payload_bytes += row["payload"]
                facts.heartbeats += row["heartbeats"]
        facts.files = self.query("select count(distinct file) n from {frames}")[0]["n"]

    def _streams(self, facts: Facts) -> None:
        names = ("naks", "nak_bytes", "status_messages", "retransmits", "retransmitted_bytes", "duplicates", "gaps",
                 "lost_bytes", "new_bytes", "messages", "setups")  # fmt: skip
        sums = ", ".join(f"coalesce(sum({name}), 0) {name}" for name in names)
        facts.totals = self.query(f"select {sums}, count(distinct session_id, stream_id) sessions from {{sessions}}")[0]
        facts.sessions_count = facts.totals.pop("sessions")
        facts.sessions = self.query(
            "select * from {sessions} order by lost_bytes desc, receiver_stall_ns + network_stall_ns desc, wire_bytes desc,"
            f" session_id, stream_id, channel limit {MAX_SESSIONS}"
        )
        facts.channels = self.query(f"select * from {{channels}} order by wire_bytes desc limit {MAX_SESSIONS}")

    def _losses(self, facts: Facts) -> None:
        key = "session_id, stream_id, channel"
        facts.gaps = self.query(
            f"select {key}, place, status, count(*) ranges, sum(length) bytes, sum(naks) naks, max(repair_ns) slowest_ns,"
            f" max(length) largest from {{gaps}} group by {key}, place, status"
            f" order by bytes desc, place, status, {key}"
        )
        found = self.query("select reason, count(*) n from {retransmits} group by reason order by reason")
        facts.retransmits = {row["reason"]: row["n"] for row in found}
        facts.rtt = [
            _quantiles(row)
            for row in self.query(
                f"select protocol, method, count(*) n, {QUANTILES.format('rtt_ns')} q, max(rtt_ns) max_ns from {{rtt}}"
                " group by protocol, method order by protocol, method"
            )
        ]
        facts.stalls = self.query(
            f"select {key}, cause, count(*) times, sum(duration_ns) duration_ns, sum(held_ns) held_ns,"
            f" max(duration_ns) longest_ns from {{flow_control}} group by {key}, cause order by duration_ns desc, cause, {key}"
        )
        facts.longest_stalls = self.query(
            "select * from {flow_control} order by held_ns desc, duration_ns desc, start_ns, session_id, stream_id"
            f" limit {MAX_STALLS}"
        )

    def _connections(self, facts: Facts) -> None:
        facts.mux = self.query(
            "select protocol, status, count(*) streams, sum(bytes_from_client) bytes_from_client,"
            " sum(bytes_from_server) bytes_from_server, sum(grants) grants, sum(client_exhausted_ns) client_exhausted_ns,"
            " sum(server_exhausted_ns) server_exhausted_ns from {mux_streams} group by protocol, status order by 1, 2"
        )
        facts.requests = self.query(
            "select outcome, count(*) n, sum(cast(may_have_run as int)) may_have_run from {requests} group by outcome"
            " order by n desc, outcome"
        )
        (latency,) = self.query(
            f"select count(*) n, {QUANTILES.format('latency_ns')} q, max(latency_ns) max_ns from {{requests}}"
            " where latency_ns is not null"
        )
        facts.request_latency = _quantiles(latency)
        facts.aqueduct = self.query(
            "select * from {aqueduct_channels} order by messages desc, file, channel_id limit 100"
        )

    def problems(self, facts: Facts) -> None:
        """What was wrong with captures and recordings."""
        found = self.query("select kind, count(*) n from {problems} group by kind order by n desc, kind")
        facts.problem_counts = {row["kind"]: row["n"] for row in found}
        facts.problems = self.query(f"select * from {{problems}} order by time_ns, file, packet limit {MAX_PROBLEMS}")

    def recordings(self, facts: Facts) -> None:
        """Everything about recordings."""
        facts.recordings = self.query("select * from {recorded_sessions} order by recording_id")
        firsts = [row["first_ns"] for row in facts.recordings if row["first_ns"]]
        if firsts and not facts.first_ns:
            facts.first_ns, facts.last_ns = min(firsts), max(row["last_ns"] for row in facts.recordings)

    def _timelines(self, facts: Facts) -> None:
        width = max(-(-facts.duration_ns // BINS), 1)
        bins = max(-(-facts.duration_ns // width), 1)
        empty = (facts.first_ns, width, bins)
        at = f"least((time_ns - {facts.first_ns}L) div {width}L, {bins - 1})"
        facts.timeline = Timeline(*empty)
        for row in self.query(
            f"select {at} at, protocol, sum(if(frame_index = 0, wire_length, 0)) bytes, sum(coalesce(length, 0)) payload,"
            " sum(cast(protocol = 'aeron' and type = 2 as int)) naks from {frames}"
            " where protocol not in ('tcp', 'problem') group by 1, 2"
        ):
            _put(
                facts.timeline,
                row["at"],
                {row["protocol"]: row["bytes"], "payload": row["payload"], "naks": row["naks"]},
            )
        chosen = [key_of(row) for row in facts.sessions[:MAX_PAGES]]
        facts.stream_timelines = {key: Timeline(*empty) for key in chosen}
        key = "session_id, stream_id, channel"
        for row in self.query(
            f"select {key}, {at} at, sum(if(frame_index = 0, wire_length, 0)) bytes, sum(if(type = 1, length, 0)) payload,"
            " sum(cast(type = 2 as int)) naks from {frames} where protocol = 'aeron' and channel is not null"
            f" group by {key}, {at}"
        ):
            _put_stream(facts, row, {name: row[name] for name in ("bytes", "payload", "naks")}, total=False)
        for row in self.query(
            f"select {key}, {at} at, sum(if(reason like 'lost%', 1, 0)) retransmits, sum(if(reason like 'lost%', length, 0))"
            f" resent from {{retransmits}} group by {key}, {at}"
        ):
            _put_stream(facts, row, {name: row[name] for name in ("retransmits", "resent")}, total=True)
        self._round_trips(facts, at)

    def _round_trips(self, facts: Facts, at: str) -> None:
        key = "session_id, stream_id, channel"
        for row in self.query(
            f"select {key}, method, {at} at, percentile_approx(rtt_ns, 0.5, 1000) middle, max(rtt_ns) slowest from {{rtt}}"
            f" group by {key}, method, {at}"
        ):
            found = facts.stream_timelines.get(key_of(row))
            for timeline in (facts.timeline, found):
                if timeline is not None:
                    _put_most(timeline, row["at"], f"{row['method']} median", row["middle"] / 1e6)
                    _put_most(timeline, row["at"], f"{row['method']} slowest", row["slowest"] / 1e6)


def _quantiles(row: RowDict) -> RowDict:
    middle, high, higher = row.pop("q") or (None, None, None)
    return row | {"p50_ns": middle, "p90_ns": high, "p99_ns": higher}


def _put(timeline: Timeline, at: int, values: dict[str, float]) -> None:
    for name, value in values.items():
        series = timeline.series.setdefault(name, [0.0] * timeline.bins)
        series[at] = (series[at] or 0.0) + (value or 0)


def _put_most(timeline: Timeline, at: int, name: str, value: float) -> None:
    series = timeline.series.setdefault(name, [None] * timeline.bins)
    old = series[at]
    series[at] = value if old is None else max(old, value)


def _put_stream(facts: Facts, row: RowDict, values: dict[str, float], *, total: bool) -> None:
    key: StreamKey = key_of(row)
    if key in facts.stream_timelines:
        _put(facts.stream_timelines[key], row["at"], values)
    if total:
        _put(facts.timeline, row["at"], values)


class _Names(dict[str, Any]):
    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._own = prefix

    def __missing__(self, name: str) -> str:
        return self._own + name
