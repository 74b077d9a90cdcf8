"""List the streams of a driver, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from mainstem.cli._drivers import Inspection
from mainstem.cli._output import Column, Table, number, pick, print_table, print_title

if TYPE_CHECKING:
    from rich.console import Console

    from mainstem.aeron.tools.streams import Image, Publication, Stream, Subscriber

COLUMNS = (
    Column("stream", "right"),
    Column("session", "right"),
    Column("publisher", "right"),
    Column("limit", "right"),
    Column("sender", "right"),
    Column("receiver", "right"),
    Column("subscribers"),
    Column("client", "cut"),
    Column("channel", "cut"),
)


def run(inspection: Inspection) -> None:
    """List the streams of a driver, one line each.

    For each stream: how far the publisher has written, its limit, how far the sender, the receiver and every subscriber
    are (in brackets: the subscription's registration id, its client, and the recording that an archive makes of it). A
    dash means that this driver has no such stage. "client" is the publisher's, with what an archive publishes there.

    Example: mainstem streams --channel localhost:20121 --watch
    """
    inspection.run_for_streams(_row, _show)


def _show(out: Console, streams: list[Stream]) -> None:
    table = Table(COLUMNS, [_cells(each) for each in streams])
    if table.fits(out.width):
        print_table(out, table)
    else:
        _print_narrow(out, table)


def _print_narrow(out: Console, table: Table) -> None:
    """Print several lines per stream, because one would not fit."""
    for stream_id, session_id, publisher, limit, sender, receiver, subscribers, client, channel in table.rows:
        print_title(out, f"stream {stream_id}  session {session_id}", channel)
        if client != "-":
            out.print(Text(f"  client {client}"))
        steps = (("pub", publisher), ("lmt", limit), ("snd", sender), ("rcv", receiver))
        out.print(Text("  " + "  ".join(f"{name} {value}" for name, value in steps if value != "-")))
        if subscribers != "-":
            out.print(Text(f"  sub {subscribers}"))


def _cells(stream: Stream) -> list[str]:
    publication = stream.publication
    readers = [*(publication.subscribers if publication else ()), *(s for i in stream.images for s in i.subscribers)]
    return [
        str(stream.stream_id),
        str(stream.session_id),
        number(publication.position if publication else None),
        number(publication.limit if publication else None),
        number(publication.sender_position if publication else None),
        ", ".join(number(i.position) for i in stream.images) or "-",
        ", ".join(_reader(s) for s in readers) or "-",
        _publisher(publication) if publication else "-",
        stream.channel,
    ]


def _publisher(publication: Publication) -> str:
    return publication.client.shown + (f", {publication.purpose}" if publication.purpose else "")


def _reader(subscriber: Subscriber) -> str:
    text = f"{subscriber.registration_id} {subscriber.client.shown}"
    if subscriber.recording is not None:
        text += f", {subscriber.recording.name} at {subscriber.recording.position:,}"
    return f"{subscriber.position:,}{' spy' if subscriber.is_spy else ''} [{text}]"


def _row(stream: Stream) -> dict[str, object]:
    return pick(stream, "session_id stream_id channel") | {
        "publication": _publication_row(stream.publication) if stream.publication else None,
        "images": [_image_row(each) for each in stream.images],
    }


def _publication_row(publication: Publication) -> dict[str, object]:
    row = {
        "registration_id": publication.key.registration_id,
        "client_id": publication.client.client_id,
        "client_name": publication.client.name,
    }
    row |= pick(publication, "purpose position limit window sender_position sender_limit back_pressure_events")
    return row | {
        "naks_received": publication.naks,
        "receivers": publication.receivers,
        "destinations": publication.destinations,
        "is_connected": publication.log.is_connected if publication.log else None,
        "subscribers": [_subscriber_row(each) for each in publication.subscribers],
    }


def _image_row(image: Image) -> dict[str, object]:
    row = pick(image.key, "registration_id channel") | pick(image, "position high_water_mark window")
    return row | {
        "naks_sent": image.naks,
        "active_transports": image.log.active_transports if image.log else None,
        "subscribers": [_subscriber_row(each) for each in image.subscribers],
    }


def _subscriber_row(subscriber: Subscriber) -> dict[str, object]:
    recording = subscriber.recording
    return {
        "registration_id": subscriber.registration_id,
        "client_id": subscriber.client.client_id,
        "client_name": subscriber.client.name,
        **pick(subscriber, "channel position join_position is_spy"),
        "recording": pick(recording, "archive_id recording_id position") if recording else None,
    }
