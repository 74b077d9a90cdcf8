"""Show how many bytes wait between one station of each stream and the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from mainstem.aeron.tools.backlog import stations
from mainstem.aeron.tools.select import snapshot_header
from mainstem.aeron.tools.streams import group_streams
from mainstem.cli._directory import (
    ChannelOption,
    DirectoryOption,
    JsonOption,
    SessionOption,
    StreamOption,
    console,
    header,
    number,
    open_directory,
    plain_table,
    print_json,
    print_title,
    take_snapshot,
)

if TYPE_CHECKING:
    from mainstem.aeron.tools.backlog import Station

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
    print_title(out, header(snapshot))
    if not chosen:
        out.print("no streams")
    for one in chosen:
        title = f"stream {one.stream_id}  session {one.session_id}  {one.channel}"
        print_title(out, title)
        table = plain_table(
            ("  station", "left"),
            ("id", "right"),
            ("position", "right"),
            ("behind", "right"),
            ("room", "right"),
            ("", "cut"),
        )
        for station in stations(one):
            room = number(station.room)
            where = ROOMS.get(station.kind, "") if station.room is not None else ""
            cells = [f"  {station.kind}", str(station.registration_id), number(station.position)]
            table.add_row(*map(Text, [*cells, number(station.backlog), room, where]))
        out.print(table)


def _row(station: Station) -> dict[str, object]:
    return {
        "station": station.kind,
        "registration_id": station.registration_id,
        "position": station.position,
        "behind": station.backlog,
        "room": station.room,
    }
