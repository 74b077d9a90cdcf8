"""Show how many bytes wait between one stage of each stream and the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.tools.backlog import stage_row, stages
from mainstem.cli._drivers import Inspection
from mainstem.cli._output import Column, Table, number, print_table, print_title

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.tools.backlog import Stage
    from mainstem.aeron.tools.streams import Stream

COLUMNS = (
    Column("  stage"),
    Column("id", "right"),
    Column("position", "right"),
    Column("behind", "right"),
    Column("room", "right"),
    Column("", "cut"),
    Column("client", "cut"),
)
ROOMS = {"publisher": "before back pressure", "sender": "in the receivers' window", "receiver": "in its window"}


def run(inspection: Inspection) -> None:
    """Show how many bytes wait between one stage of each stream and the next.

    "behind" is how many bytes a stage is behind the one before it; "room" is how far it can advance before something
    stops it.

    Example: mainstem backlog --stream 1001 --watch
    """
    inspection.run_for_streams(_stream_row, _show)


def _show(out: Console, streams: list[Stream]) -> None:
    for each in streams:
        print_title(out, f"stream {each.stream_id}  session {each.session_id}", each.channel)
        print_table(out, Table(COLUMNS, [_cells(stage) for stage in stages(each)]))


def _stream_row(stream: Stream) -> dict[str, object]:
    return {
        "session_id": stream.session_id,
        "stream_id": stream.stream_id,
        "channel": stream.channel,
        "stages": [stage_row(stage) for stage in stages(stream)],
    }


def _cells(stage: Stage) -> list[str]:
    room_of = ROOMS.get(stage.kind, "") if stage.room is not None else ""
    numbers = [number(stage.position), number(stage.backlog), number(stage.room)]
    client = stage.client.shown if stage.client else ""
    return [f"  {stage.kind}", str(stage.registration_id), *numbers, room_of, client]
