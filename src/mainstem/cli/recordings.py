"""List, show, verify, remove and compact recordings, in a directory or in a store."""

from __future__ import annotations

import atexit
import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK, seconds_ns
from mainstem._internal.printable import printable
from mainstem.cli._options import (
    App,
    JsonOption,
    LocationArgument,
    RecordingOption,
    StoreOption,
    duration,
    store_options,
    time_ns,
)
from mainstem.cli._output import Column, Table, console, moment, number, print_json, print_table
from mainstem.cli._process import say, stopping
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import RecordingReader, find_problems
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.shipping import compaction
from mainstem.recording.shipping.compaction import MIN_ORPHAN_AGE_NS, compact
from mainstem.recording.shipping.garbage import collect_garbage
from mainstem.recording.shipping.manifest import ManifestLog
from mainstem.recording.shipping.retention import before_committed, before_time, lowest, remove
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.verification import find_archive_problems
from mainstem.recording.verify import Problem, find_directory_problems, find_start_problem
from mainstem.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.recording.archive import Archive
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.shipping.retention import Limit

app = App("List, show, verify, remove and compact recordings, in a directory or in a store.")

ArchiveOption = Annotated[str, typer.Option("--archive", metavar="ID", help="The archive id.", show_default="all")]
GracePeriodOption = Annotated[
    float,
    duration(
        "--grace-period",
        help="Keep objects that are out of use for this long, for readers that still have them.",
    ),
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
    location: LocationArgument,
    archive: ArchiveOption = "",
    store_option: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the recordings at a location.

    Example: mainstem recordings ls s3://bucket/tides
    """
    rows = [_row(each, d) for each in _archives(location, archive, store_option) for d in each.recordings()]
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
    location: LocationArgument,
    archive: ArchiveOption = "",
    recording: RecordingOption = None,
    store_option: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show archives and their recordings in full: positions, times, objects, who ships them.

    Example: mainstem recordings show tides --recording 0
    """
    result = []
    archives = _archives(location, archive, store_option)
    _require_recording(location, archives, recording)
    for each in archives:
        rows = [_row(each, d) | _details(each, d) for d in each.recordings() if recording in (None, d.recording_id)]
        result.append(_archive_row(each) | {"recordings": rows})
    if as_json:
        print_json(result)
        return
    out = console()
    for shown in result:
        out.print(f"archive {shown['archive']}", style="bold", soft_wrap=True)
        for name, value in shown.items():
            if name not in ("archive", "recordings"):
                out.print(f"  {name}: {value}", soft_wrap=True)
        for row in shown["recordings"]:
            out.print(f"  recording {row['recording_id']}", style="bold", soft_wrap=True)
            for name, value in row.items():
                if name not in ("archive", "host", "recording_id"):
                    out.print(
                        f"    {name}: {value:,}" if isinstance(value, int) else f"    {name}: {value}", soft_wrap=True
                    )


@app.command("verify")
def verify(
    location: LocationArgument,
    archive: ArchiveOption = "",
    recording: RecordingOption = None,
    check_frames: Annotated[
        bool, typer.Option("--check-frames", help="Check every frame and the checksums of the index, too.")
    ] = False,
    store_option: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read everything and compare the checksums; exit 1 where something is missing or changed.

    Example: mainstem recordings verify tides
    """
    rows = []
    archives = _archives(location, archive, store_option)
    _require_recording(location, archives, recording)
    for each in archives:
        for problem in _problems(each, recording, check_frames):
            row = {
                "archive": each.archive_id,
                "recording_id": problem.recording_id,
                "position": problem.position,
                "kind": problem.kind,
                "text": problem.text,
            }
            rows.append(row)
            if not as_json:
                what = f"recording {problem.recording_id}" if problem.recording_id >= 0 else "the catalog"
                text = f"{what} at {problem.position}: {problem.kind}: {problem.text}"
                print(printable(text), flush=True)
    if as_json:
        print_json(rows)
    elif not rows:
        say("no problems found")
    if rows:
        raise typer.Exit(1)


@app.command("rm")
def remove_recordings(
    location: LocationArgument,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="WHEN", help="Remove what was recorded before this age (30d) or time."),
    ] = "",
    consumed_by: Annotated[
        list[str] | None,
        typer.Option(
            "--consumed-by",
            metavar="CHECKPOINT",
            help="Remove only what the streaming query with this checkpoint (path or URL) has committed.",
        ),
    ] = None,
    archive: ArchiveOption = "",
    recording: RecordingOption = None,
    grace_period: GracePeriodOption = 3600.0,
    store_option: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove whole segments from the beginning of shipped recordings: what is old, and what no query reads any more.

    With --older-than and --consumed-by, what both allow. The segment that a recording grows in stays.

    Example: mainstem recordings rm s3://bucket/tides --older-than 30d
    """
    if not older_than and not consumed_by:
        raise ConfigurationError("rm needs --older-than, --consumed-by, or both")
    now_ns = SYSTEM_CLOCK.epoch_ns()
    rows: list[dict[str, Any]] = []
    progress = [_committed(text, store_option) for text in consumed_by or []]
    for each in _shipped(location, archive, store_option):
        limits: list[Limit] = (
            [before_time(time_ns(older_than, name="--older-than", now_ns=now_ns))] if older_than else []
        )
        limits += [before_committed(each.archive_id, positions) for positions in progress]
        limit = _only(recording, lowest(limits))
        rows += [
            {
                "archive": each.archive_id,
                "recording_id": removed.recording_id,
                "start": removed.start,
                "end": removed.end,
                "objects": removed.objects,
                "bytes": removed.nbytes,
            }
            for removed in remove(each.store, each.archive_id, limit, now_ns, grace_ns=seconds_ns(grace_period))
        ]
        collect_garbage(ManifestLog(each.store, each.archive_id), SYSTEM_CLOCK.epoch_ns())
    _report(
        rows,
        as_json,
        "removed positions {start:,} to {end:,} of recording {recording_id}: {bytes:,} bytes",
        "nothing to remove",
    )


@app.command("compact")
def compact_recordings(
    location: LocationArgument,
    archive: ArchiveOption = "",
    grace_period: GracePeriodOption = 3600.0,
    remove_orphans: Annotated[
        bool,
        typer.Option(
            "--remove-orphans", help="Delete objects that nothing refers to and that are older than a day, too."
        ),
    ] = False,
    store_option: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Join the small objects of each shipped segment into one, and delete those that were replaced.

    Example: mainstem recordings compact s3://bucket/tides
    """
    rows: list[dict[str, Any]] = []
    with stopping() as stop:
        for each in _shipped(location, archive, store_option):
            done = compact(
                each.store,
                each.archive_id,
                SYSTEM_CLOCK.epoch_ns,
                grace_ns=seconds_ns(grace_period),
                stops=lambda: stop.requested,
            )
            _, deleted = collect_garbage(ManifestLog(each.store, each.archive_id), SYSTEM_CLOCK.epoch_ns())
            if remove_orphans and not stop.requested:
                deleted += compaction.remove_orphans(
                    each.store, each.archive_id, SYSTEM_CLOCK.epoch_ns(), age_ns=MIN_ORPHAN_AGE_NS
                )
            rows.append(
                {
                    "archive": each.archive_id,
                    "chunks": done.chunks,
                    "objects": done.objects,
                    "bytes": done.nbytes,
                    "deleted": deleted,
                }
            )
    _report(
        rows,
        as_json,
        "archive {archive}: {chunks:,} chunks are {objects:,} objects; {deleted:,} old ones deleted",
        "nothing to compact",
    )


def _report(rows: list[dict[str, Any]], as_json: bool, line: str, empty: str) -> None:
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        say(line.format(**row))
    if not rows:
        say(empty)


def _archives(location: str, archive_id: str, texts: list[str] | None) -> list[Archive]:
    found = open_archives(location, ReadOptions.parse(store_options(texts)))
    for each in found:
        atexit.register(each.close)
    archives = [each for each in found if archive_id in ("", each.archive_id)]
    if not archives:
        raise RecordingError(f"{location} has no archive {archive_id}")
    return archives


def _require_recording(location: str, archives: list[Archive], recording: int | None) -> None:
    """Raise RecordingError if no archive has the recording that was asked for."""
    if recording is not None and not any(d.recording_id == recording for each in archives for d in each.recordings()):
        raise RecordingError(f"{location} has no recording {recording}; `mainstem recordings ls {location}` lists them")


def _shipped(location: str, archive_id: str, texts: list[str] | None) -> list[ShippedArchive]:
    archives = _archives(location, archive_id, texts)
    shipped = [each for each in archives if isinstance(each, ShippedArchive)]
    if len(shipped) < len(archives):
        raise ConfigurationError(
            f"{location} is not shipped recordings; this works on what `mainstem ship` has shipped"
        )
    return shipped


def _row(archive: Archive, d: RecordingDescriptor) -> dict[str, Any]:
    with RecordingReader(archive, d) as reader:
        start, end = reader.start_position, reader.end_position()
        # Without an index all frames would have to be read.
        messages = reader.messages_before(end) if reader.index is not None else None
    return {
        "archive": archive.archive_id,
        "host": archive.host,
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


def _details(archive: Archive, d: RecordingDescriptor) -> dict[str, Any]:
    details: dict[str, Any] = {
        "source": d.source_identity,
        "term_length": d.term_buffer_length,
        "segment_length": d.segment_file_length,
        "mtu": d.mtu_length,
        "segments": len(archive.segments(d)),
    }
    if isinstance(archive, ShippedArchive):
        entry = archive.entry(d.recording_id)
        details |= {
            "objects": entry.tree.count,
            "bytes": entry.tree.nbytes,
            "recorded_until": moment(entry.recorded_ns // NS_PER_MS) if entry.recorded_ns > 0 else None,
        }
    return details


def _archive_row(archive: Archive) -> dict[str, Any]:
    row: dict[str, Any] = {"archive": archive.archive_id, "url": archive.url, "host": archive.host}
    if isinstance(archive, ShippedArchive):
        manifest = archive.manifest
        row |= {
            "manifest": manifest.number,
            "committed": moment(manifest.time_ns // NS_PER_MS),
            "shipper": str(manifest.shipper) if manifest.shipper else None,
            "to_delete": len(manifest.garbage),
        }
    return row


def _problems(archive: Archive, recording: int | None, frames: bool) -> Iterator[Problem]:
    if isinstance(archive, ShippedArchive):
        yield from find_archive_problems(archive, recording_id=recording, frames=frames)
        return
    if isinstance(archive, DirectoryArchive) and archive.directory is not None:
        yield from (
            each for each in find_directory_problems(archive.directory) if recording in (None, each.recording_id)
        )
    for d in archive.recordings():
        if recording in (None, d.recording_id):
            try:
                with RecordingReader(archive, d) as reader:
                    if problem := find_start_problem(reader):
                        yield problem
                    yield from find_problems(reader, reader.start_position, reader.end_position())
            except RecordingError as error:
                yield Problem(d.recording_id, d.start_position, "missing", str(error))


def _only(recording: int | None, limit: Limit) -> Limit:
    return lambda entry, pages: (
        limit(entry, pages) if recording in (None, entry.descriptor.recording_id) else entry.start
    )


def _committed(checkpoint: str, texts: list[str] | None) -> Any:
    from mainstem.spark.sources.checkpoints import committed_positions

    with ExitStack() as stack:
        store = open_store(checkpoint, store_options(texts))
        stack.callback(store.close)
        return committed_positions(store)


def _short(archive_id: str) -> str:
    return archive_id if len(archive_id) <= 40 else archive_id[-40:]
