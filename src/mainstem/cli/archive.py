"""Run an archive, and use one, Mainstem's or Java's: list, start, stop, replay, replicate and delete recordings.

`serve` may be omitted: mainstem archive --archive-dir tides. The other commands are clients of a running archive.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK
from mainstem._internal.exposure import check_host_exposure
from mainstem._internal.open_files_limit import raise_open_files_limit
from mainstem._internal.units import parse_moment_ns, parse_pairs
from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.channel_values import listen_address
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.archive import RecordingSignal, Signal, SourceLocation
from mainstem.archive import connect as connect_archive
from mainstem.archive.server import ArchiveServer, ArchiveSettings, CredentialTable
from mainstem.cli import recordings
from mainstem.cli._drivers import connect
from mainstem.cli._options import (
    ID,
    App,
    ChannelArgument,
    ChannelOption,
    ConfigOption,
    CountOption,
    CsvOption,
    DirectoryOption,
    FollowOption,
    Group,
    InsecureOption,
    JsonOption,
    RecordingOption,
    SetOption,
    SinceOption,
    StreamId,
    StreamOption,
    TimeoutOption,
    UntilOption,
    argument,
    flag,
    integer,
    option,
    size,
)
from mainstem.cli._output import console, number, print_json, print_rows, print_table, table_of
from mainstem.cli._process import configure, say, say_recovery, stopping
from mainstem.cli.sub import Printing, Reader
from mainstem.errors import ArchiveError, ConfigurationError, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.archive import Client, RecordingDescriptor

CHECK_S = 0.25
CREDENTIALS_VARIABLE = "MAINSTEM_ARCHIVE_CREDENTIALS"
CONTROL = "localhost:8010"
# Not the id of the recorded stream: an archive that is still recording that stream would record the replay.
REPLAY_STREAM_ID = 19_795


class _Commands(Group):
    """A group in which options without a command mean `serve`, as in `mainstem archive --archive-dir tides`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


app = App(__doc__, cls=_Commands)

ControlOption = Annotated[
    str, option("--control", "URI", "The control channel of the archive, or its HOST:PORT over UDP.")
]
CredentialsOption = Annotated[
    Path | None,
    option(
        "--credentials-file",
        "FILE",
        "A file with a credential, such as user:password. The server accepts each line of its file.",
        f"the variable {CREDENTIALS_VARIABLE}",
    ),
]
ExtendOption = Annotated[int | None, integer("--extend", "Continue this recording instead of a new one.", metavar=ID)]
RecordingArgument = Annotated[int, argument("The recording id.", min=0)]


@dataclass
class Driver:
    """The options for the media driver of a server or client."""

    path: DirectoryOption = ""
    with_driver: Annotated[
        bool, flag("--with-driver", "Start a media driver in --dir for as long as this command runs.")
    ] = False

    @contextmanager
    def directory(self) -> Iterator[str]:
        if self.with_driver:
            with MediaDriver.launch(self.path or None) as driver:
                yield driver.directory
        else:
            yield self.path


@dataclass(kw_only=True)
class Connection:
    """The options for connecting to a running archive."""

    control: ControlOption = CONTROL
    response_channel: Annotated[
        str,
        option(
            "--response-channel",
            "URI",
            "Where the archive responds to: a channel, or HOST:PORT of this machine (port 0 = any free port).",
            "localhost, or IPC",
        ),
    ] = ""
    credentials_file: CredentialsOption = None
    driver: Driver
    timeout: TimeoutOption = 10.0

    @property
    def limit(self) -> float | None:
        """The timeout of each request; None waits forever."""
        return self.timeout or None

    @contextmanager
    def open(self) -> Iterator[Client]:
        channel = channel_of(self.control, "--control")
        responses = channel_of(self.response_channel, "--response-channel") if self.response_channel else None
        secret = _read_credentials(self.credentials_file)
        with (
            self.driver.directory() as directory,
            connect(directory, "archive") as aeron,
            connect_archive(
                channel,
                response_channel=responses,
                credentials=secret,
                client_name=f"mainstem-archive-{os.getpid()}",
                timeout=self.limit,
                aeron=aeron,
            ) as client,
        ):
            yield client


@app.command("serve")
def serve(
    archive_dir: Annotated[Path, option("--archive-dir", "PATH", "The archive's directory, which has its recordings.")],
    driver: Driver,
    control: ControlOption = CONTROL,
    credentials_file: CredentialsOption = None,
    insecure: InsecureOption = False,
    config: ConfigOption = "",
    set_: SetOption = None,
) -> None:
    """Run an archive: Aeron's own clients record streams into a directory, list and replay them.

    Anyone who can reach --control can record, replay and delete everything, unless --credentials-file restricts who may
    connect. It listens on localhost by default; on an address of other machines it needs --credentials-file, or
    --insecure. Settings come from the defaults, the table `archive` of the TOML file,
    the environment (AERON_ARCHIVE_...), then these options.

    Example: mainstem archive serve --archive-dir tides --control 'aeron:udp?endpoint=localhost:8010'
    """
    configure(logging.WARNING)
    raise_open_files_limit()
    options: dict[str, dict[str, object]] = {"--set": {**parse_pairs(set_, name="--set")}}
    if control != CONTROL:
        options["--control"] = {"control_channel": channel_of(control, "--control")}
    settings = ArchiveSettings.load(toml=config or None, options=options)
    accepted = _read_credentials(credentials_file)
    if settings.control_channel:
        endpoint = ChannelUri.parse(settings.control_channel).values.get("endpoint", "")
        protection = {f"--credentials-file or {CREDENTIALS_VARIABLE}": bool(accepted)}
        host, _ = listen_address(endpoint, "--control")
        check_host_exposure(host, insecure=insecure, protection=protection, name="--control")
    authenticator = CredentialTable({each: each.partition(b":")[0] for each in accepted.splitlines() if each})
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        aeron_directory = stack.enter_context(driver.directory()) or None
        server = stack.enter_context(
            ArchiveServer.launch(
                archive_dir,
                aeron_directory,
                settings=settings,
                authenticator=authenticator if accepted else None,
                on_recovery=say_recovery,
            )
        )
        where = ", ".join(server.control_addresses) or settings.local_control_channel
        say(f"archive {server.settings.id} in {archive_dir}, requests on {where}")
        while not stop.requested and not server.wait(CHECK_S):
            pass
        if server.error is not None:
            raise server.error


TABLE, COLUMNS = (
    tuple(column for column in columns if column.name not in ("archive", "host", "messages"))
    for columns in (recordings.TABLE, recordings.COLUMNS)
)


@app.command("ls", columns=COLUMNS)
def list_recordings(
    *,
    stream: StreamOption = None,
    channel: ChannelOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    as_csv: CsvOption = False,
    as_json: JsonOption = False,
    connection: Connection,
) -> None:
    """List the recordings of an archive; --since and --until choose those that were recorded in that time.

    Example: mainstem archive ls --control localhost:8010
    """
    limits = [_epoch_ms(text, name) for text, name in ((since, "--since"), (until, "--until"))]
    with connection.open() as client:
        found = client.list_recordings(timeout=connection.limit)
        rows = [_listed(client, each, connection.limit) for each in found if _is_chosen(each, stream, channel, *limits)]
    if not print_rows(rows, COLUMNS, as_json=as_json, as_csv=as_csv):
        print_table(console(), table_of(TABLE, rows))


@app.command("start")
def start(
    *,
    channel: ChannelArgument,
    stream: StreamId,
    remote: Annotated[
        bool, flag("--remote", "Subscribe over the network, not to publications of the archive's driver.")
    ] = False,
    auto_stop: Annotated[bool, flag("--auto-stop", "Stop when the first recording ends.")] = False,
    extend: ExtendOption = None,
    as_json: JsonOption = False,
    connection: Connection,
) -> None:
    """Have an archive record a stream. Each publication that the channel matches, now or later, is a recording.

    Example: mainstem archive start aeron:ipc 1001 --control localhost:8010
    """
    own_stream = stream.chosen
    where = SourceLocation.REMOTE if remote else SourceLocation.LOCAL
    more: dict[str, Any] = {"auto_stop": auto_stop, "timeout": connection.limit}
    with connection.open() as client:
        if extend is None:
            subscription_id = client.start_recording(channel, own_stream, where, **more)
        else:
            subscription_id = client.extend_recording(extend, channel, own_stream, where, **more)
    text = f"recording {channel} stream {own_stream}, by recording subscription {subscription_id}"
    print_json({"subscription_id": subscription_id}) if as_json else say(text)


@app.command("stop")
def stop(
    *,
    channel: Annotated[str, argument("The channel that `start` was given.")] = "",
    stream: StreamId,
    recording: RecordingOption = None,
    subscription: Annotated[
        int | None, option("--subscription", ID, "The recording subscription that `start` printed.")
    ] = None,
    connection: Connection,
) -> None:
    """Have an archive stop recording: a stream, a recording subscription, or one recording.

    Example: mainstem archive stop aeron:ipc 1001

    Example: mainstem archive stop --recording 7
    """
    if (bool(channel), recording is not None, subscription is not None).count(True) != 1:
        raise ConfigurationError("stop needs exactly one of: a channel and stream, --recording, --subscription")
    own_stream = stream.chosen if channel else 0
    with connection.open() as client:
        if recording is not None:
            if not client.stop_recording_by_identity(recording, timeout=connection.limit):
                say(f"recording {recording} was not active")
                return
        elif subscription is not None:
            client.stop_recording_subscription(subscription, timeout=connection.limit)
        else:
            client.stop_recording(channel, own_stream, timeout=connection.limit)
    say("stopped")


@app.command("replay")
def replay(
    *,
    recording: RecordingArgument,
    position: Annotated[
        int | None, integer("--from", "Where to begin.", "the recording's start", metavar="POSITION")
    ] = None,
    length: Annotated[int, size("--length", "How much to replay.", "all")] = 0,
    follow: FollowOption = False,
    count: CountOption = 0,
    replay_channel: Annotated[
        str,
        option(
            "--replay-channel",
            "URI",
            "Where the archive replays to: a channel, or HOST:PORT of this machine.",
            "as --response-channel",
        ),
    ] = "",
    printing: Printing,
    connection: Connection,
) -> None:
    """Print the messages of a recording, as `mainstem sub` prints those of a stream.

    It stops at the current end of the recording; with --follow it continues until the recording stops.

    Example: mainstem archive replay 7 --control localhost:8010 --output json

    Example: mainstem archive replay 7 --from 1048576 --length 64k
    """
    if follow and length:
        raise ConfigurationError("--follow and --length exclude one another")
    lay_out = printing.layout()
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        client = stack.enter_context(connection.open())
        described = _recording(client, recording, connection.limit)
        end = client.max_recorded_position(recording, timeout=connection.limit)
        if not follow and end == described.start_position:
            say(f"recording {recording} is empty")
            return
        channel = _replay_channel(replay_channel, connection.response_channel, connection.control)
        subscription = stack.enter_context(
            client.replay(
                recording,
                channel,
                REPLAY_STREAM_ID,
                position=position,
                length=length or None,
                follow=follow or bool(length),
                timeout=connection.limit,
            )
        )
        reader = Reader(subscription, printing.stats, lay_out)
        try:
            reader.read(stop, count, exit_at_end=True, timeout=0.0 if follow else connection.timeout)
        finally:
            reader.report_all()
        if not stop.requested and not count:
            # Nothing is left to read, so this only raises the error of a replay that ended early.
            deque(subscription.messages(), maxlen=0)


@app.command("replicate")
def replicate(
    *,
    recording: Annotated[int, argument("The recording id in the other archive.", min=0)],
    source: Annotated[str, argument("The control channel of the other archive, or its HOST:PORT over UDP.")],
    extend: ExtendOption = None,
    until_position: Annotated[int | None, integer("--until-position", "Where to stop.", metavar="POSITION")] = None,
    live: Annotated[str, option("--live", "URI", "Join this live stream when the copy has caught up.")] = "",
    source_credentials_file: Annotated[
        Path | None, option("--source-credentials-file", "FILE", "A file with credentials for the other archive.")
    ] = None,
    wait: Annotated[bool, flag("--wait/--no-wait", "Wait until the copy is complete, or live.")] = True,
    as_json: JsonOption = False,
    connection: Connection,
) -> None:
    """Have the archive at --control copy a recording of another archive, which it connects to itself.

    --timeout limits each request; the copy may take longer.

    Example: mainstem archive replicate 7 archive.example:8010 --control localhost:8010
    """
    source_channel = channel_of(source, "SOURCE")
    secret = _read_credentials(source_credentials_file, variable="")
    with connection.open() as client, stopping() as stop:
        replication_id = client.replicate(
            recording,
            source_channel,
            dst_recording_id=extend,
            stop_position=until_position,
            live_destination=live,
            credentials=secret,
            timeout=connection.limit,
        )
        row: dict[str, Any] = {
            "replication_id": replication_id,
            "recording_id": extend,
            "position": None,
            "signal": None,
        }
        while wait and not stop.requested and row["signal"] not in ("REPLICATE_END", "MERGE"):
            with suppress(Timeout):
                event = next(client.events(timeout=CHECK_S))
                if isinstance(event, ArchiveError):
                    raise event
                if event.correlation_id == replication_id:
                    _note(row, event)
        if stop.requested:
            client.stop_replication(replication_id, timeout=connection.limit)
    if as_json:
        print_json(row)
    elif wait:
        say(
            f"recording {recording} of {source} is recording {row['recording_id']} here, up to {number(row['position'])}"
        )
    else:
        say(f"replication {replication_id} has begun")


@app.command("truncate")
def truncate(
    recording: RecordingArgument,
    position: Annotated[int, argument("The position at which the recording ends from now on.", min=0)],
    connection: Connection,
) -> None:
    """Delete the end of a recording that has stopped.

    Example: mainstem archive truncate 7 1048576
    """
    with connection.open() as client:
        files = client.truncate_recording(recording, position, timeout=connection.limit)
    say(f"recording {recording} ends at {position:,}; {files} segments deleted")


@app.command("purge")
def purge(
    *,
    recording: RecordingArgument,
    before: Annotated[
        int | None, integer("--before", "Delete only the segments before this one's start.", metavar="POSITION")
    ] = None,
    connection: Connection,
) -> None:
    """Delete a recording that has stopped, or with --before the first segments of any.

    Example: mainstem archive purge 7

    Example: mainstem archive purge 7 --before 1073741824
    """
    with connection.open() as client:
        if before is None:
            files = client.purge_recording(recording, timeout=connection.limit)
        else:
            files = client.purge_segments(recording, before, timeout=connection.limit)
    say(f"{files} segments of recording {recording} deleted")


def channel_of(text: str, name: str) -> str:
    """Return the channel for a text, which is a channel or HOST:PORT. Raises ConfigurationError."""
    if text.startswith("aeron:"):
        return text
    host, separator, port = text.rpartition(":")
    if not host or not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(
            f"{name}: {text!r} is neither a channel (aeron:udp?endpoint=localhost:8010) nor HOST:PORT"
        )
    return f"aeron:udp?endpoint={text}"


def _read_credentials(path: Path | None, variable: str = CREDENTIALS_VARIABLE) -> bytes:
    if path is None:
        secret = os.environ.get(variable) if variable else None
        if secret is not None and not secret.strip():
            raise ConfigurationError(f"{variable} is empty: put credentials into it, or unset it")
        return (secret or "").encode()
    try:
        data = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigurationError(f"--credentials-file: {path}: {error.strerror}") from None
    if not data.strip():
        raise ConfigurationError(f"--credentials-file: {path} holds no credentials: write a line with them")
    return data


def _epoch_ms(text: str, name: str) -> int | None:
    if text.isdecimal():
        raise ConfigurationError(
            f"{name}: an archive's recordings are chosen by a time or an age, not by a position ({text})"
        )
    return parse_moment_ns(text, name=name, now_ns=SYSTEM_CLOCK.epoch_ns()) // NS_PER_MS if text else None


def _is_chosen(
    recording: RecordingDescriptor, stream: int | None, channel: str, since_ms: int | None, until_ms: int | None
) -> bool:
    return (
        stream in (None, recording.stream_id)
        and channel in recording.original_channel
        and (since_ms is None or recording.stop_timestamp < 0 or recording.stop_timestamp >= since_ms)
        and (until_ms is None or recording.start_timestamp < until_ms)
    )


def _listed(client: Client, d: RecordingDescriptor, timeout: float | None) -> recordings.Listed:
    grows = d.stop_position < 0
    end = client.max_recorded_position(d.recording_id, timeout=timeout) if grows else d.stop_position
    return recordings.Listed(descriptor=d, start_position=d.start_position, end_position=end)


def _recording(client: Client, recording_id: int, timeout: float | None) -> RecordingDescriptor:
    found = client.list_recording(recording_id, timeout=timeout)
    if found is None:
        raise ConfigurationError(f"the archive has no recording {recording_id}; `mainstem archive ls` lists them")
    return found


def _replay_channel(text: str, response_channel: str, control: str) -> str:
    if text:
        return channel_of(text, "--replay-channel")
    if response_channel:
        return channel_of(response_channel, "--response-channel")
    return "aeron:ipc" if channel_of(control, "--control").startswith("aeron:ipc") else "aeron:udp?endpoint=localhost:0"


def _note(row: dict[str, Any], event: Signal) -> None:
    row["signal"] = event.signal.name
    if event.recording_id >= 0:
        row["recording_id"] = event.recording_id
    if event.position >= 0 and event.signal in (RecordingSignal.SYNC, RecordingSignal.STOP, RecordingSignal.MERGE):
        row["position"] = event.position
