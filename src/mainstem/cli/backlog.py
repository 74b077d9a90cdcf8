"""Show how many bytes wait between one station of each stream and the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.tools.backlog import stations
from mainstem.aeron.tools.select import snapshot_header
from mainstem.aeron.tools.streams import group_streams
from mainstem.cli._directory import (
    ChannelOption,
    DirectoryOption,
    IntervalOption,
    JsonOption,
    SessionOption,
    StreamOption,
    number,
    open_directory,
    print_header,
    print_json,
    take_snapshot,
)
from mainstem.cli._table import Column, Table, print_table, print_title
from mainstem.cli._watch import WatchOption, show_again

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.tools.backlog import Station
    from mainstem.aeron.tools.snapshot import Snapshot

COLUMNS = (
    Column("  station"),
    Column("id", "right"),
    Column("position", "right"),
    Column("behind", "right"),
    Column("room", "right"),
    Column("", "cut"),
    Column("client", "cut"),
)
ROOMS = {"publisher": "before back pressure", "sender": "in the receivers' window", "receiver": "in its window"}


def run(
    directory: DirectoryOption = "",
    session: SessionOption = None,
    stream: StreamOption = None,
    channel: ChannelOption = "",
    watch: WatchOption = False,
    interval: IntervalOption = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show how many bytes wait between one station of each stream and the next.

    "behind" are the bytes that the station before has and this one has not; "room" those that it may advance before
    something stops it.

    Example: mainstem backlog --stream 1001 --watch
    """

    def show(out: Console) -> None:
        _show(out, take_snapshot(reader, logs=True), session, stream, channel, as_json)

    with open_directory(directory) as reader:
        show_again(show, watch=watch, interval=interval, as_json=as_json)


def _show(
    out: Console, snapshot: Snapshot, session: int | None, stream: int | None, channel: str, as_json: bool
) -> None:
    chosen = [
        s
        for s in group_streams(snapshot)
        if session in (None, s.session_id) and stream in (None, s.stream_id) and channel in s.channel
    ]
    if as_json:
        rows = [
            {
                "session_id": s.session_id,
                "stream_id": s.stream_id,
                "channel": s.channel,
                "stations": [_row(station) for station in stations(s)],
            }
            for s in chosen
        ]
        print_json(snapshot_header(snapshot) | {"streams": rows})
        return
    print_header(out, snapshot)
    if not chosen:
        out.print("no streams")
    for one in chosen:
        print_title(out, f"stream {one.stream_id}  session {one.session_id}", one.channel)
        print_table(out, Table(COLUMNS, [_cells(station) for station in stations(one)]))


def _cells(station: Station) -> list[str]:
    room_of = ROOMS.get(station.kind, "") if station.room is not None else ""
    numbers = [number(station.position), number(station.backlog), number(station.room)]
    client = station.client.shown if station.client else ""
    return [f"  {station.kind}", str(station.registration_id), *numbers, room_of, client]


def _row(station: Station) -> dict[str, object]:
    return {
        "station": station.kind,
        "registration_id": station.registration_id,
        "client": station.client.shown if station.client else None,
        "position": station.position,
        "behind": station.backlog,
        "room": station.room,
    }
