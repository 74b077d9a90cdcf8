"""Show how many bytes wait between one station of each stream and the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.tools.backlog import stations
from mainstem.aeron.tools.select import snapshot_header
from mainstem.aeron.tools.streams import group_streams
from mainstem.cli._directory import (
    ChannelOption,
    DirectoryOption,
    JsonOption,
    SessionOption,
    StreamOption,
    number,
    open_directory,
    print_header,
    print_json,
    take_snapshot,
)
from mainstem.cli._table import Column, Table, console, print_table, print_title

if TYPE_CHECKING:
    from mainstem.aeron.tools.backlog import Station

COLUMNS = (
    Column("  station"),
    Column("id", "right"),
    Column("position", "right"),
    Column("behind", "right"),
    Column("room", "right"),
    Column("", "cut"),
)
ROOMS = {"publisher": "before back pressure", "sender": "in the receivers' window", "receiver": "in its window"}


def run(
    directory: DirectoryOption = "",
    session: SessionOption = None,
    stream: StreamOption = None,
    channel: ChannelOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show how many bytes wait between one station of each stream and the next.

    "behind" are the bytes that the station before has and this one has not; "room" those that it may advance before
    something stops it.
    """
    with open_directory(directory) as reader:
        snapshot = take_snapshot(reader, logs=True)
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
    out = console()
    print_header(out, snapshot)
    if not chosen:
        out.print("no streams")
    for one in chosen:
        print_title(out, f"stream {one.stream_id}  session {one.session_id}", one.channel)
        print_table(out, Table(COLUMNS, [_cells(station) for station in stations(one)]))


def _cells(station: Station) -> list[str]:
    room_of = ROOMS.get(station.kind, "") if station.room is not None else ""
    numbers = [number(station.position), number(station.backlog), number(station.room)]
    return [f"  {station.kind}", str(station.registration_id), *numbers, room_of]


def _row(station: Station) -> dict[str, object]:
    return {
        "station": station.kind,
        "registration_id": station.registration_id,
        "position": station.position,
        "behind": station.backlog,
        "room": station.room,
    }
