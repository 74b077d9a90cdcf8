"""List, show, verify, remove and compact recordings, in a directory or in a store."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem._internal.printable import printable
from mainstem.cli._directory import JsonOption, moment, number, print_json
from mainstem.cli._logs import say
from mainstem.cli._store_options import StoreOptions, options_of
from mainstem.cli._stream import stopping
from mainstem.cli._table import Column, Table, console, print_table
from mainstem.clock import NS_PER_MS, NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import RecordingReader, faults
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.shipping.compaction import MIN_ORPHAN_AGE_NS, compact, sweep_orphans
from mainstem.recording.shipping.garbage import sweep
from mainstem.recording.shipping.local_retention import Keep
from mainstem.recording.shipping.manifest import ManifestChain
from mainstem.recording.shipping.retention import before_committed, before_time, lowest, remove
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.verification import archive_faults
from mainstem.recording.verify import Fault, directory_faults
from mainstem.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.recording.archive import Archive
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.shipping.retention import Limit

app = typer.Typer(
    no_args_is_help=True, help="List, show, verify, remove and compact recordings, in a directory or a store."
)

UrlArgument = Annotated[
    str, typer.Argument(help="A recorder's directory, a place that is shipped to, or an archive of it.")
]
ArchiveOption = Annotated[str, typer.Option("--archive", "-a", help="Only this archive (its id).")]
RecordingOption = Annotated[int | None, typer.Option("--recording", "-r", help="Only this recording id.")]
GraceOption = Annotated[
    str, typer.Option(help="How long the objects stay after the manifest has dropped them, for readers under way.")
]

COLUMNS = (
    Column("archive"),
    Column("host"),
    Column("id", "right"),
    Column("stream", "right"),
    Column("session", "right"),
    Column("start", "right"),
    Column("end", "right"),
    Column("messages", "right"),
    Column("state"),
    Column("started"),
    Column("channel", "cut"),
)


@app.command("ls")
def list_recordings(
    url: UrlArgument, archive: ArchiveOption = "", option: StoreOptions = None, as_json: JsonOption = False
) -> None:
    """List the recordings of a place.

    Example: mainstem recordings ls s3://bucket/tides
    """
    rows = [_row(place, d) for place in _archives(url, archive, option) for d in place.recordings()]
    if as_json:
        print_json(rows)
        return
    cells = [
        [
            _short(row["archive"]),
            row["host"] or "-",
            str(row["recording_id"]),
            str(row["stream_id"]),
            str(row["session_id"]),
            number(row["start_position"]),
            number(row["end_position"]),
            number(row["messages"]),
            row["state"],
            moment(row["start_timestamp"])[:19],
            row["channel"],
        ]
        for row in rows
    ]
    print_table(console(), Table(COLUMNS, cells))


@app.command("show")
def show(
    url: UrlArgument,
    archive: ArchiveOption = "",
    recording: RecordingOption = None,
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Show archives and their recordings in full: positions, times, objects, who ships them.

    Example: mainstem recordings show tides --recording 0
    """
    result = []
    for place in _archives(url, archive, option):
        rows = [_row(place, d) | _details(place, d) for d in place.recordings() if recording in (None, d.recording_id)]
        result.append(_archive_row(place) | {"recordings": rows})
    if as_json:
        print_json(result)
        return
    out = console()
    for each in result:
        out.print(f"archive {each['archive']}", style="bold", soft_wrap=True)
        for name, value in each.items():
            if name not in ("archive", "recordings"):
                out.print(f"  {name}: {value}", soft_wrap=True)
        for row in each["recordings"]:
            out.print(f"  recording {row['recording_id']}", style="bold", soft_wrap=True)
            for name, value in row.items():
                if name not in ("archive", "host", "recording_id"):
                    out.print(
                        f"    {name}: {value:,}" if isinstance(value, int) else f"    {name}: {value}", soft_wrap=True
                    )


@app.command("verify")
def verify(
    url: UrlArgument,
    archive: ArchiveOption = "",
    recording: RecordingOption = None,
    frames: Annotated[bool, typer.Option("--frames", help="Walk frames and the checksums of the index too.")] = False,
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Read everything and compare the checksums; exit 1 where something is missing or changed.

    Example: mainstem recordings verify tides
    """
    rows = []
    for place in _archives(url, archive, option):
        for fault in _faults(place, recording, frames):
            row = {
                "archive": place.archive_id,
                "recording_id": fault.recording_id,
                "position": fault.position,
                "kind": fault.kind,
                "text": fault.text,
            }
            rows.append(row)
            if not as_json:
                what = f"recording {fault.recording_id}" if fault.recording_id >= 0 else "the catalog"
                text = f"{what} at {fault.position}: {fault.kind}: {fault.text}"
                print(printable(text), flush=True)
    if as_json:
        print_json(rows)
    elif not rows:
        say("no faults")
    if rows:
        raise typer.Exit(1)


@app.command("rm")
def remove_recordings(
    url: UrlArgument,
    before: Annotated[
        str, typer.Option(help="Remove what was recorded before: an ISO time, or an age as 30d, 24h, 90min.")
    ] = "",
    committed: Annotated[
        list[str] | None,
        typer.Option(
            help="Only what the streaming query with this checkpoint (path or URL) has committed; repeatable."
        ),
    ] = None,
    archive: ArchiveOption = "",
    recording: RecordingOption = None,
    grace: GraceOption = "1h",
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Remove whole segments from the beginning of shipped recordings: what is old, and what no query reads any more.

    With --before and --committed, what both allow. The segment that a recording grows in stays.

    Example: mainstem recordings rm s3://bucket/tides --before 30d
    """
    if not before and not committed:
        raise ConfigurationError("rm removes what is before something: --before TIME, --committed CHECKPOINT, or both")
    now_ns = SYSTEM_CLOCK.epoch_ns()
    rows: list[dict[str, Any]] = []
    progress = [each for text in committed or [] for each in [_committed(text, option)]]
    for place in _shipped(url, archive, option):
        limits: list[Limit] = [before_time(_time_ns(before, now_ns))] if before else []
        limits += [before_committed(place.archive_id, positions) for positions in progress]
        limit = _only(recording, lowest(limits))
        rows += [
            {
                "archive": place.archive_id,
                "recording_id": removed.recording_id,
                "start": removed.start,
                "end": removed.end,
                "objects": removed.objects,
                "bytes": removed.octets,
            }
            for removed in remove(place.store, place.archive_id, limit, now_ns, grace_ns=_age_ns(grace, "--grace"))
        ]
        sweep(ManifestChain(place.store, place.archive_id), SYSTEM_CLOCK.epoch_ns())
    _report(
        rows,
        as_json,
        "removed positions {start:,} to {end:,} of recording {recording_id}: {bytes:,} bytes",
        "nothing to remove",
    )


@app.command("compact")
def compact_recordings(
    url: UrlArgument,
    archive: ArchiveOption = "",
    grace: GraceOption = "1h",
    sweep_all: Annotated[
        bool, typer.Option("--sweep", help="Also delete objects that nothing refers to and that are older than a day.")
    ] = False,
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Make one object of the pieces of each shipped segment, and delete what has been replaced for long enough.

    Example: mainstem recordings compact s3://bucket/tides
    """
    rows: list[dict[str, Any]] = []
    with stopping() as stop:
        for place in _shipped(url, archive, option):
            done = compact(
                place.store,
                place.archive_id,
                SYSTEM_CLOCK.epoch_ns,
                grace_ns=_age_ns(grace, "--grace"),
                stops=lambda: stop.asked,
            )
            _, deleted = sweep(ManifestChain(place.store, place.archive_id), SYSTEM_CLOCK.epoch_ns())
            if sweep_all and not stop.asked:
                deleted += sweep_orphans(
                    place.store, place.archive_id, SYSTEM_CLOCK.epoch_ns(), age_ns=MIN_ORPHAN_AGE_NS
                )
            rows.append(
                {
                    "archive": place.archive_id,
                    "pieces": done.pieces,
                    "objects": done.objects,
                    "bytes": done.octets,
                    "deleted": deleted,
                }
            )
    _report(
        rows,
        as_json,
        "archive {archive}: {pieces:,} pieces are {objects:,} objects; {deleted:,} old ones deleted",
        "nothing there",
    )


def _report(rows: list[dict[str, Any]], as_json: bool, line: str, empty: str) -> None:
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        say(line.format(**row))
    if not rows:
        say(empty)


def _archives(url: str, archive: str, option: list[str] | None) -> list[Archive]:
    found = open_archives(url, ReadOptions.parse(options_of(option)))
    places = [place for place in found if archive in ("", place.archive_id)]
    if not places:
        raise RecordingError(f"{url} holds no archive {archive}")
    return places


def _shipped(url: str, archive: str, option: list[str] | None) -> list[ShippedArchive]:
    places = _archives(url, archive, option)
    shipped = [place for place in places if isinstance(place, ShippedArchive)]
    if len(shipped) < len(places):
        raise ConfigurationError(
            f"{url} is a recorder's directory: this works on what `mainstem ship` has put into a store"
        )
    return shipped


def _row(place: Archive, d: RecordingDescriptor) -> dict[str, Any]:
    with RecordingReader(place, d) as reader:
        start, end = reader.start_position, reader.end_position()
    messages: int | None = None
    if isinstance(place, ShippedArchive):
        entry = place.entry(d.recording_id)
        messages = entry.messages if entry.has_index else None
    return {
        "archive": place.archive_id,
        "host": place.host,
        "recording_id": d.recording_id,
        "stream_id": d.stream_id,
        "session_id": d.session_id,
        "channel": d.original_channel,
        "start_position": start,
        "end_position": end,
        "messages": messages,
        "state": "growing" if d.stop_position < 0 else "ended",
        "start_timestamp": d.start_timestamp,
        "stop_timestamp": d.stop_timestamp,
    }


def _details(place: Archive, d: RecordingDescriptor) -> dict[str, Any]:
    details: dict[str, Any] = {
        "source": d.source_identity,
        "term_length": d.term_buffer_length,
        "segment_length": d.segment_file_length,
        "mtu": d.mtu_length,
        "segments": len(place.segments(d)),
    }
    if isinstance(place, ShippedArchive):
        entry = place.entry(d.recording_id)
        details |= {
            "objects": entry.tree.count,
            "bytes": entry.tree.octets,
            "recorded_until": moment(entry.recorded_ns // NS_PER_MS) if entry.recorded_ns > 0 else None,
        }
    return details


def _archive_row(place: Archive) -> dict[str, Any]:
    row: dict[str, Any] = {"archive": place.archive_id, "url": place.url, "host": place.host}
    if isinstance(place, ShippedArchive):
        manifest = place.manifest
        row |= {
            "manifest": manifest.number,
            "committed": moment(manifest.time_ns // NS_PER_MS),
            "shipper": str(manifest.shipper) if manifest.shipper else None,
            "to_delete": len(manifest.garbage),
        }
    return row


def _faults(place: Archive, recording: int | None, frames: bool) -> Iterator[Fault]:
    if isinstance(place, ShippedArchive):
        yield from archive_faults(place, recording_id=recording, frames=frames)
        return
    if isinstance(place, DirectoryArchive) and place.directory is not None:
        yield from (each for each in directory_faults(place.directory) if recording in (None, each.recording_id))
    for d in place.recordings():
        if recording in (None, d.recording_id):
            try:
                with RecordingReader(place, d) as reader:
                    yield from faults(reader, reader.start_position, reader.end_position())
            except RecordingError as error:
                yield Fault(d.recording_id, d.start_position, "missing", str(error))


def _only(recording: int | None, limit: Limit) -> Limit:
    return lambda entry, pages: (
        limit(entry, pages) if recording in (None, entry.descriptor.recording_id) else entry.start
    )


def _committed(checkpoint: str, option: list[str] | None) -> Any:
    from mainstem.spark.sources.checkpoints import committed_positions

    with ExitStack() as stack:
        store = open_store(checkpoint, options_of(option))
        stack.callback(store.close)
        return committed_positions(store)


def _age_ns(text: str, name: str) -> int:
    age_ns = Keep.parse(text).age_ns if re.fullmatch(r"\d+(s|min|h|d)", text) else None
    if age_ns is None:
        raise ConfigurationError(f"{name}: {text!r} is no time (30d, 24h, 90min, 10s)")
    return age_ns


def _time_ns(text: str, now_ns: int) -> int:
    if re.fullmatch(r"\d+(s|min|h|d)", text):
        return now_ns - _age_ns(text, "--before")
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * NS_PER_SECOND)
    except ValueError:
        raise ConfigurationError(
            f"--before: {text!r} is neither an ISO time (2026-01-31T12:00:00+01:00) nor an age (30d, 24h, 90min)"
        ) from None


def _short(archive_id: str) -> str:
    return archive_id if len(archive_id) <= 40 else archive_id[-40:]
