"""Show how many bytes wait between one stage of each stream and the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.tools.backlog import stage_row, stages
from mainstem.cli._drivers import Inspection
from mainstem.cli._output import Column, print_table, print_title, table_of

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.tools.streams import Stream

ROOMS = {"publisher": "before back pressure", "sender": "in the receivers' window", "receiver": "in its window"}
COLUMNS = (
    Column(
        "stage",
        meaning="publisher, sender, receiver, subscriber, spy or recording.",
        heading="  stage",
        show=lambda row: f"  {row['stage']}",
    ),
    Column("registration_id", "id", "The registration id; of a recording, the recording's id.", heading="id"),
    Column("position", "right", "How far the stage is."),
    Column("behind", "right", "How many bytes it is behind the stage before it."),
    Column("room", "right", "How far it can advance before something stops it."),
    Column("", "cut", show=lambda row: ROOMS.get(row["stage"], "") if row["room"] is not None else ""),
    Column("client", "cut", "Its client.", show=lambda row: row["client"] or ""),
)


def run(inspection: Inspection) -> None:
    """Show how many bytes wait between one stage of each stream and the next.

    Example: mainstem backlog --stream 1001 --watch
    """
    inspection.run_for_streams(_stream_row, _show)


def _show(out: Console, streams: list[Stream]) -> None:
    for each in streams:
        print_title(out, f"stream {each.stream_id}  session {each.session_id}", each.channel)
        print_table(out, table_of(COLUMNS, [stage_row(stage) for stage in stages(each)]))


def _stream_row(stream: Stream) -> dict[str, object]:
    return {
        "session_id": stream.session_id,
        "stream_id": stream.stream_id,
        "channel": stream.channel,
        "stages": [stage_row(stage) for stage in stages(stream)],
    }
