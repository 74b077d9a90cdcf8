"""List, show, verify, remove and compact recordings, and manage a directory of them.

`checksum`, `mark-valid`, `mark-invalid`, `delete-orphans`, `capacity`, and `compact` for a directory, change a directory on this
machine, of Mainstem's recorder or of Aeron Archive. They refuse one that a recorder or an archive uses.
"""

from __future__ import annotations

import atexit
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from mainstem._core.layout import DATA_HEADER_LENGTH
from mainstem._core.log.checksums import FrameChecksum
from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK, seconds_ns
from mainstem._internal.printable import printable
from mainstem._internal.units import parse_moment_ns
from mainstem.aeron.logbuffer import align_frame
from mainstem.aeron.tools.log_walk import decode_frame
from mainstem.cli._options import (
    ID,
    App,
    CsvOption,
    FrameLimitOption,
    JsonOption,
    LocationArgument,
    PayloadBytesOption,
    RecordingOption,
    StoreOption,
    argument,
    choice,
    duration,
    flag,
    option,
    size,
    store_options,
)
from mainstem.cli._output import Column, console, moment, pick, print_json, print_rows, print_table, row_of, table_of
from mainstem.cli._process import say, stopping
from mainstem.cli.log import frame_row, show_frames
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording import RecordingReader, find_problems
from mainstem.recording.archive import DirectoryArchive
from mainstem.recording.catalog import (
    CATALOG_FILE,
    ENTRY_HEADER_LENGTH,
    STATE_NAMES,
    STATE_VALID,
    read_catalog,
    read_entries,
)
from mainstem.recording.mark_file import read_mark
from mainstem.recording.offline_maintenance import ALGORITHMS, Maintenance, find_orphans, find_removable, segment_files
from mainstem.recording.open_archives import ReadOptions, open_archives
from mainstem.recording.shipping import compaction
from mainstem.recording.shipping.compaction import MIN_ORPHAN_AGE_NS, compact
from mainstem.recording.shipping.manifest import ManifestLog, collect_garbage
from mainstem.recording.shipping.shipped_archive import ShippedArchive
from mainstem.recording.shipping.shipped_retention import before_committed, before_time, lowest, remove
from mainstem.recording.shipping.verify_shipped import find_archive_problems
from mainstem.recording.verify_recordings import Problem, find_directory_problems, find_start_problem
from mainstem.store import is_url, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstem.aeron.tools.log_walk import LogFrame
    from mainstem.recording.archive import Archive
    from mainstem.recording.catalog import RecordingDescriptor
    from mainstem.recording.shipping.manifest import ShippedRecording
    from mainstem.recording.shipping.shipped_retention import Limit

app = App(__doc__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A row of a listing: a recording's descriptor, and what its archive knows beyond that."""

    descriptor: RecordingDescriptor
    start_position: int
    end_position: int
    archive: Archive | None = None  # None in `mainstem archive ls`, which lists one archive
    messages: int | None = None
    mark: str = ""  # invalid or deleted, if its catalog marks it so

    @property
    def state(self) -> str:
        return self.mark or ("growing" if self.descriptor.stop_position < 0 else "ended")


def _of_descriptor(value: Callable[[RecordingDescriptor], Any]) -> Callable[[Listed], Any]:
    return lambda row: value(row.descriptor)


def _of_shipped(value: Callable[[ShippedRecording], Any]) -> Callable[[Listed], Any]:
    return lambda row: value(cast("ShippedArchive", row.archive).entry(row.descriptor.recording_id))


def _second(epoch_ms: int) -> str:
    return moment(epoch_ms)[:19] if epoch_ms >= 0 else "-"


# What tables show; JSON and CSV have COLUMNS. `mainstem archive ls` lists both, except the archive, its host, and the messages.
TABLE = (
    Column(
        "archive",
        meaning="The archive's id, or its end.",
        cell=lambda row: row.archive.archive_id,
        show=lambda row: row.archive.archive_id[-40:],
    ),
    Column("host", meaning="The host that recorded.", cell=lambda row: row.archive.host),
    Column("recording_id", "id", "The recording id.", "id", cell=_of_descriptor(lambda d: d.recording_id)),
    Column("stream_id", "id", "The stream id.", "stream", cell=_of_descriptor(lambda d: d.stream_id)),
    Column("session_id", "id", "The session id.", "session", cell=_of_descriptor(lambda d: d.session_id)),
    Column("start_position", "right", "The position at which it begins.", "start"),
    Column("end_position", "right", "The position up to which it can be read.", "end"),
    Column("messages", "right", "How many messages it has, if it has an index."),
    Column("state", meaning="growing or ended; with `recordings ls --all-states`, also invalid or deleted."),
    Column(
        "start_timestamp",
        meaning="When it started.",
        heading="started",
        cell=_of_descriptor(lambda d: d.start_timestamp),
        show=_of_descriptor(lambda d: _second(d.start_timestamp)),
    ),
    Column("channel", "cut", "The channel.", cell=_of_descriptor(lambda d: d.original_channel)),
)
COLUMNS = (
    *TABLE,
    Column(
        "stop_timestamp",
        meaning="In JSON and CSV: when it ended; below 0 while it grows.",
        cell=_of_descriptor(lambda d: d.stop_timestamp),
        show=_of_descriptor(lambda d: _second(d.stop_timestamp)),
    ),
    Column(
        "source",
        meaning="In JSON and CSV: the address of its publisher.",
        cell=_of_descriptor(lambda d: d.source_identity),
    ),
)
DETAILS = (
    *COLUMNS,
    Column("term_length", "right", cell=_of_descriptor(lambda d: d.term_buffer_length)),
    Column("segment_length", "right", cell=_of_descriptor(lambda d: d.segment_file_length)),
    Column("mtu", "right", cell=_of_descriptor(lambda d: d.mtu_length)),
    Column("segments", "right", cell=lambda row: len(row.archive.segments(row.descriptor))),
)
SHIPPED_DETAILS = (
    *DETAILS,
    Column("objects", "right", cell=_of_shipped(lambda entry: entry.tree.count)),
    Column("bytes", "right", cell=_of_shipped(lambda entry: entry.tree.nbytes)),
    Column(
        "recorded_until",
        cell=_of_shipped(lambda e: moment(e.recorded_ns // NS_PER_MS) if e.recorded_ns > 0 else None),
    ),
)

GracePeriodOption = Annotated[
    float,
    duration("--grace-period", "Keep objects that are out of use for this long, for readers that still have them."),
]
AllStatesOption = Annotated[
    bool, flag("--all-states", "Include recordings of a directory that are marked as invalid or deleted.")
]
DryRunOption = Annotated[bool, flag("--dry-run", "Say what would be deleted, and delete nothing.")]
DirectoryArgument = Annotated[Path, argument("A directory of recordings on this machine.")]
RecordingArgument = Annotated[int, argument("The recording id.")]


@dataclass
class Archives:
    """The options that select the archives for a command."""

    location: LocationArgument
    archive: Annotated[str, option("--archive", ID, "The archive id.", "all")] = ""
    store_option: StoreOption = None

    def open(self, recording: int | None = None) -> list[Archive]:
        """Open the archives until the process ends. Raises RecordingError if none has the requested recording."""
        found = open_archives(self.location, ReadOptions.parse(store_options(self.store_option, self.location)))
        for each in found:
            atexit.register(each.close)
        archives = [each for each in found if self.archive in ("", each.archive_id)]
        if not archives:
            raise RecordingError(f"{self.location} has no archive {self.archive}")
        if recording is not None and not any(True for each in archives for _ in _chosen(each, recording)):
            raise RecordingError(
                f"{self.location} has no recording {recording}; `mainstem recordings ls {self.location}` lists them"
            )
        return archives

    def open_shipped(self) -> list[ShippedArchive]:
        archives = self.open()
        shipped = [each for each in archives if isinstance(each, ShippedArchive)]
        if len(shipped) < len(archives):
            raise ConfigurationError(
                f"{self.location} does not hold shipped recordings: this works only on what `mainstem ship` has written"
            )
        return shipped

    def directory(self) -> Path | None:
        """Return the local directory; None if there are shipped recordings or several archives."""
        archives = self.open()
        found = [each.directory for each in archives if isinstance(each, DirectoryArchive)]
        return found[0] if len(found) == len(archives) == 1 else None


@app.command("ls", columns=COLUMNS)
def list_recordings(
    where: Archives, everything: AllStatesOption = False, as_csv: CsvOption = False, as_json: JsonOption = False
) -> None:
    """List the recordings at a location.

    Example: mainstem recordings ls s3://bucket/tides
    """
    rows = [row for each in where.open() for row in _listed(each, everything)]
    if not print_rows(rows, COLUMNS, as_json=as_json, as_csv=as_csv):
        print_table(console(), table_of(TABLE, rows))


@app.command("show")
def show(
    where: Archives, recording: RecordingOption = None, everything: AllStatesOption = False, as_json: JsonOption = False
) -> None:
    """Show archives and their recordings in full: positions, times, objects, who ships them.

    Example: mainstem recordings show tides --recording 0
    """
    result = []
    for each in where.open(None if everything else recording):
        rows = [row for row in _listed(each, everything) if recording in (None, row.descriptor.recording_id)]
        result.append((_archive_row(each), SHIPPED_DETAILS if isinstance(each, ShippedArchive) else DETAILS, rows))
    if as_json:
        print_json(
            [archive | {"recordings": [row_of(columns, row) for row in rows]} for archive, columns, rows in result]
        )
        return
    out = console()
    for archive, columns, rows in result:
        out.print(f"archive {archive['archive']}", style="bold", soft_wrap=True)
        for name, value in archive.items():
            if name != "archive":
                out.print(f"  {name}: {'-' if value in ('', None) else value}", soft_wrap=True)
        for row in rows:
            out.print(f"  recording {row.descriptor.recording_id}", style="bold", soft_wrap=True)
            for column in columns:
                if column.name not in ("archive", "host", "recording_id"):
                    out.print(f"    {column.name}: {column.text(row)}", soft_wrap=True)


@app.command("verify")
def verify(
    where: Archives,
    recording: RecordingOption = None,
    check_frames: Annotated[
        bool, flag("--check-frames", "In a store, also check every frame, as is always done in a directory.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read everything and compare the checksums; the exit code is 1 if something is missing or has changed.

    Example: mainstem recordings verify tides
    """
    rows = []
    for each in where.open(recording):
        for problem in _problems(each, recording, check_frames):
            rows.append({"archive": each.archive_id} | pick(problem, "recording_id position kind text"))
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
    where: Archives,
    older_than: Annotated[
        str, option("--older-than", "WHEN", "Remove what was recorded before this age (30d) or time.")
    ] = "",
    consumed_by: Annotated[
        list[str] | None,
        option(
            "--consumed-by",
            "CHECKPOINT",
            "Remove only what the streaming query with this checkpoint (path or URL) has committed.",
        ),
    ] = None,
    recording: RecordingOption = None,
    grace_period: GracePeriodOption = 3600.0,
    as_json: JsonOption = False,
) -> None:
    """Remove whole segments from the beginning of shipped recordings: old ones, or those that no query reads any more.

    With both --older-than and --consumed-by, both must allow it. The segment that is being recorded is kept.

    Example: mainstem recordings rm s3://bucket/tides --older-than 30d
    """
    if not older_than and not consumed_by:
        raise ConfigurationError("rm needs --older-than, --consumed-by, or both")
    now_ns = SYSTEM_CLOCK.epoch_ns()
    rows: list[dict[str, Any]] = []
    progress = [_committed(text, where.store_option) for text in consumed_by or []]
    for each in where.open_shipped():
        limits: list[Limit] = (
            [before_time(parse_moment_ns(older_than, name="--older-than", now_ns=now_ns))] if older_than else []
        )
        limits += [before_committed(each.archive_id, positions) for positions in progress]
        limit = _only(recording, lowest(limits))
        rows += [
            {"archive": each.archive_id, **pick(removed, "recording_id start end objects"), "bytes": removed.nbytes}
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
    where: Archives,
    grace_period: GracePeriodOption = 3600.0,
    remove_orphans: Annotated[
        bool, flag("--remove-orphans", "Also delete objects that nothing refers to and that are older than a day.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Join the small objects of each shipped segment into one, and delete those that were replaced.

    In a recorder's or an archive's directory, delete the recordings that are marked as invalid or deleted, with their files
    and their entries in the catalog; --dry-run lists them.

    Example: mainstem recordings compact s3://bucket/tides

    Example: mainstem recordings compact tides --dry-run
    """
    rows: list[dict[str, Any]] = []
    directory = where.directory()
    if directory is not None:
        _compact_directory(directory, dry_run, as_json)
        return
    if dry_run:
        raise ConfigurationError(f"--dry-run is for a directory of recordings, not for shipped ones ({where.location})")
    with stopping() as stop:
        for each in where.open_shipped():
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
            counts = {"chunks": done.chunks, "objects": done.objects, "bytes": done.nbytes, "deleted": deleted}
            rows.append({"archive": each.archive_id} | counts)
    _report(
        rows,
        as_json,
        "archive {archive}: {chunks:,} chunks are {objects:,} objects; {deleted:,} old ones deleted",
        "nothing to compact",
    )


def _compact_directory(directory: Path, dry_run: bool, as_json: bool) -> None:
    nbytes = {each.path: each.nbytes for each in segment_files(directory)}
    if dry_run:
        removed, files = find_removable(directory)
    else:
        with Maintenance(directory) as maintenance:
            removed, files = maintenance.compact()
    rows: list[dict[str, Any]] = []
    for entry in removed:
        own = [nbytes.get(each.path, 0) for each in files if each.recording_id == entry.recording_id]
        row = {"recording_id": entry.recording_id, "state": entry.state_name, "files": len(own), "bytes": sum(own)}
        rows.append(row | {"deleted": not dry_run})
    verb = "would be removed" if dry_run else "removed"
    _report(
        rows,
        as_json,
        f"recording {{recording_id}} ({{state}}) {verb}: {{files:,}} files, {{bytes:,}} bytes",
        "nothing to remove",
    )


@app.command("delete-orphans")
def delete_orphans(
    directory: DirectoryArgument,
    recording: RecordingOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete segment files outside their recordings: before the start, after the end, or of a deleted recording.

    An archive leaves them when it detaches segments. Files of a recording that the catalog does not have are deleted only if
    --recording names it: they are all that is left of it.

    Example: mainstem recordings delete-orphans tides --dry-run
    """
    found = find_orphans(directory, recording)
    sizes = [each.nbytes for each in found]
    if found and not dry_run:
        with Maintenance(directory) as maintenance:
            found = find_orphans(directory, recording)
            sizes = [each.nbytes for each in found]
            maintenance.delete(found)
    rows: list[dict[str, Any]] = [
        {"recording_id": each.recording_id, "file": each.path.name, "bytes": nbytes, "deleted": not dry_run}
        for each, nbytes in zip(found, sizes, strict=True)
    ]
    _report(rows, as_json, f"{{file}}: {{bytes:,}} bytes {'would be deleted' if dry_run else 'deleted'}", "no orphans")


@app.command("checksum")
def checksum(
    directory: DirectoryArgument,
    algorithm: Annotated[str, choice("--algorithm", tuple(ALGORITHMS), "The kind of checksum.")] = "crc-32c",
    recording: RecordingOption = None,
    everywhere: Annotated[
        bool, flag("--all-segments", "Store them in all segments, not only in the last one of each recording.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Store checksums in the frames and catalog entries of recordings, as an Aeron Archive with checksums does.

    An archive with `aeron.archive.replay.checksum` replays only frames that have them; `verify` compares them. Each recording
    is verified first. A corrupt one is left unchanged, and the exit code is 1.

    Example: mainstem recordings checksum tides --algorithm crc-32 --all-segments
    """
    rows: list[dict[str, Any]] = []
    refused: list[str] = []
    with Maintenance(directory) as maintenance:
        chosen = [each for each in read_catalog(directory) if recording in (None, each.recording_id)]
        if recording is not None and not chosen:
            raise RecordingError(f"{directory} has no valid recording {recording}")
        for each in chosen:
            try:
                frames = maintenance.store_checksums(each, FrameChecksum(ALGORITHMS[algorithm]), everywhere=everywhere)
            except RecordingError as error:
                refused.append(str(error))
            else:
                rows.append({"recording_id": each.recording_id, "frames": frames, "algorithm": algorithm})
    _report(rows, as_json, "recording {recording_id}: {frames:,} frames have a {algorithm} checksum", "nothing to do")
    for text in refused:
        say(text)
    if refused:
        raise typer.Exit(1)


@app.command("mark-invalid")
def mark_invalid(directory: DirectoryArgument, recording: RecordingArgument) -> None:
    """Mark a recording as invalid: archives and readers skip it, and its files stay until `compact`.

    Example: mainstem recordings mark-invalid tides 3
    """
    _mark(directory, recording, valid=False)


@app.command("mark-valid")
def mark_valid(directory: DirectoryArgument, recording: RecordingArgument) -> None:
    """Mark a recording as valid again.

    Example: mainstem recordings mark-valid tides 3
    """
    _mark(directory, recording, valid=True)


def _mark(directory: Path, recording: int, *, valid: bool) -> None:
    with Maintenance(directory) as maintenance:
        maintenance.set_valid(recording, valid=valid)
    say(f"recording {recording} is {'valid' if valid else 'invalid'}")


@app.command("count")
def count(directory: DirectoryArgument, as_json: JsonOption = False) -> None:
    """Count the entries of a directory's catalog by their state.

    Example: mainstem recordings count tides
    """
    states = [each.state_name for each in read_entries(directory)]
    counts = {name: states.count(name) for name in STATE_NAMES.values()}
    text = ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items(), reverse=True))
    print_json(counts) if as_json else print(text)


@app.command("capacity")
def capacity(
    directory: DirectoryArgument,
    grow_to: Annotated[int, size("--grow-to", "Make the catalog this large.", "as it is")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show how large the catalog of a directory is, and how much of it is used, or make room ahead.

    It grows by itself when a recording starts.

    Example: mainstem recordings capacity tides --grow-to 16m
    """
    if grow_to:
        with Maintenance(directory) as maintenance:
            maintenance.catalog.grow(grow_to)
    entries = read_entries(directory)
    used = max((each.offset + ENTRY_HEADER_LENGTH + each.length for each in entries), default=0)
    row = {"bytes": (directory / CATALOG_FILE).stat().st_size, "used": used, "entries": len(entries)}
    text = "{bytes:,} bytes, {used:,} of them used by {entries:,} entries".format_map(row)
    print_json(row) if as_json else print(text)


@app.command("dump")
def dump(
    where: Archives,
    recording: RecordingOption = None,
    limit: FrameLimitOption = 50,
    payload_bytes: PayloadBytesOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Show the first frames of each recording, with their headers.

    Example: mainstem recordings dump tides --recording 0 --payload-bytes 64
    """
    rows, out = [], console()
    for each in where.open(recording):
        for descriptor in _chosen(each, recording):
            with RecordingReader(each, descriptor) as reader:
                frames = list(islice(_frames(reader, payload_bytes), limit))
            if as_json:
                shown = [frame_row(frame) for frame in frames]
                rows.append({"archive": each.archive_id, "recording_id": descriptor.recording_id, "frames": shown})
            else:
                out.print(f"recording {descriptor.recording_id}", style="bold")
                show_frames(out, frames)
    if as_json:
        print_json(rows)


def _frames(reader: RecordingReader, payload_limit: int) -> Iterator[LogFrame]:
    for run in reader.ranges(reader.start_position, reader.end_position()):
        offset = run.offset
        while run.limit - offset >= DATA_HEADER_LENGTH:
            frame = decode_frame(run.memory, offset, run.position + offset - run.offset, payload_limit)
            run.check()
            if frame.length < DATA_HEADER_LENGTH:
                return
            yield frame
            offset += align_frame(frame.length)


def _chosen(archive: Archive, recording: int | None) -> list[RecordingDescriptor]:
    return [each for each in archive.recordings() if recording in (None, each.recording_id)]


def _report(rows: list[dict[str, Any]], as_json: bool, line: str, empty: str) -> None:
    if as_json:
        print_json(rows)
        return
    for row in rows:
        say(line.format(**row))
    if not rows:
        say(empty)


def _listed(archive: Archive, everything: bool) -> Iterator[Listed]:
    for d in archive.recordings():
        with RecordingReader(archive, d) as reader:
            start, end = reader.start_position, reader.end_position()
            # Without an index, this would have to read all frames.
            messages = reader.messages_before(end) if reader.index is not None else None
        yield Listed(descriptor=d, start_position=start, end_position=end, archive=archive, messages=messages)
    if everything and isinstance(archive, DirectoryArchive) and archive.directory is not None:
        for entry in read_entries(archive.directory):
            if (marked := entry.descriptor) is not None and entry.state != STATE_VALID:
                yield Listed(
                    descriptor=marked,
                    start_position=marked.start_position,
                    end_position=marked.stop_position,
                    archive=archive,
                    mark=entry.state_name,
                )


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
    elif isinstance(archive, DirectoryArchive) and archive.directory is not None:
        mark = read_mark(archive.directory)
        row["in_use_by"] = f"pid {mark.pid}" if mark is not None and mark.is_active(SYSTEM_CLOCK.epoch_ms()) else None
    return row


def _problems(archive: Archive, recording: int | None, frames: bool) -> Iterator[Problem]:
    if isinstance(archive, ShippedArchive):
        yield from find_archive_problems(archive, recording_id=recording, frames=frames)
        return
    if isinstance(archive, DirectoryArchive) and archive.directory is not None:
        yield from (
            each for each in find_directory_problems(archive.directory) if recording in (None, each.recording_id)
        )
    for d in _chosen(archive, recording):
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
    from mainstem.spark.sources.offsets import committed_positions

    options = store_options(texts, "") if is_url(checkpoint) else {}  # the location uses the same options
    with closing(open_store(checkpoint, options)) as store:
        return committed_positions(store)
