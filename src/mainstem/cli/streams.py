"""List the streams of a driver, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from mainstem.cli._drivers import Inspection
from mainstem.cli._output import Column, pick, print_table, print_title, row_of, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from mainstem.aeron.tools.streams import Image, Publication, Stream, Subscriber


def run(inspection: Inspection) -> None:
    """List the streams of a driver, one line each.

    A dash means that this driver has no such stage of the stream.

    Example: mainstem streams --channel localhost:20121 --watch
    """
    inspection.run_for_streams(_row, _show)


def _of_publication(value: Callable[[Publication], Any]) -> Callable[[Stream], Any]:
    return lambda stream: value(stream.publication) if stream.publication else None


def _client(publication: Publication) -> str:
    return publication.client.shown + (f", {publication.purpose}" if publication.purpose else "")


def _subscriber(subscriber: Subscriber) -> str:
    text = f"{subscriber.registration_id} {subscriber.client.shown}"
    if subscriber.recording is not None:
        text += f", {subscriber.recording.name} at {subscriber.recording.position:,}"
    return f"{subscriber.position:,}{' spy' if subscriber.is_spy else ''} [{text}]"


COLUMNS = (
    Column("stream_id", "id", "The stream id.", heading="stream"),
    Column("session_id", "id", "The session id.", heading="session"),
    Column("publisher", "right", "How far the publisher has written.", cell=_of_publication(lambda p: p.position)),
    Column("limit", "right", "How far it may write.", cell=_of_publication(lambda p: p.limit)),
    Column("sender", "right", "How far the sender has sent.", cell=_of_publication(lambda p: p.sender_position)),
    Column(
        "receiver",
        "right",
        "How far each receiver has everything in order.",
        cell=lambda stream: [image.position for image in stream.images],
    ),
    Column(
        "subscribers",
        "left",
        "How far each subscriber has read; in brackets its subscription's registration id, its client, and the recording that an "
        "archive makes of it.",
        cell=lambda stream: [each.position for each in stream.subscribers],
        show=lambda stream: ", ".join(_subscriber(each) for each in stream.subscribers) or "-",
    ),
    Column(
        "client", "cut", "The publisher's client, and what an archive publishes there.", cell=_of_publication(_client)
    ),
    Column("channel", "cut", "The channel."),
)


def _show(out: Console, streams: list[Stream]) -> None:
    table = table_of(COLUMNS, streams)
    if table.fits(out.width):
        print_table(out, table)
        return
    for stream in streams:
        _print_narrow(out, {column.name: (column, column.text(stream)) for column in COLUMNS})


def _print_narrow(out: Console, cells: dict[str, tuple[Column, str]]) -> None:
    """Print several lines for a stream, because one would not fit: its title, its positions, and each text."""
    (_, stream_id), (_, session_id), (_, channel) = (cells.pop(name) for name in ("stream_id", "session_id", "channel"))
    print_title(out, f"stream {stream_id}  session {session_id}", channel)
    known = [(column, f"{column.title} {text}") for column, text in cells.values() if text != "-"]
    out.print(Text("  " + "  ".join(text for column, text in known if column.is_right)))
    for column, text in known:
        if not column.is_right:
            out.print(Text(f"  {text}"))


def _row(stream: Stream) -> dict[str, object]:
    return row_of(COLUMNS, stream) | {
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
