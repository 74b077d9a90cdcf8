"""Run an archive, and use one, Mainstem's or Java's: list, start, stop, replay, replicate and delete recordings."""

from __future__ import annotations

import logging
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK, Deadline
from mainstem._internal.open_files_limit import raise_open_files_limit
from mainstem._internal.units import parse_pairs
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.archive import RecordingSignal, Signal, SourceLocation
from mainstem.archive import connect as connect_archive
from mainstem.archive.server import ArchiveServer, ArchiveSettings, CredentialTable
from mainstem.cli import _process
from mainstem.cli._drivers import connect
from mainstem.cli._options import (
    App,
    ChannelArgument,
    ChannelOption,
    CodecOption,
    CodecOptions,
    ConfigOption,
    CountOption,
    FollowOption,
    Group,
    JsonOption,
    RecordingOption,
    SetOption,
    SinceOption,
    StatsOption,
    StreamArgument,
    StreamIdOption,
    StreamOption,
    TimeoutOption,
    UntilOption,
    codec_of,
    size,
    stream_id,
    time_ns,
)
from mainstem.cli._output import Column, Table, console, moment, number, print_json, print_table
from mainstem.cli._process import say, stopping
from mainstem.cli.sub import OutputOption, Reader, TemplateOption, layout
from mainstem.errors import ArchiveError, ConfigurationError, ConnectionLost, Delivery, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.client import Image
    from mainstem.archive import Client, RecordingDescriptor

CHECK_S = 0.25
STOPPED_S = 2.0  # how long an archive may take to note that a recording has stopped
EVENTS_S = 0.2  # how long a late error of a replay that ended early may take
CREDENTIALS_VARIABLE = "MAINSTEM_ARCHIVE_CREDENTIALS"
CONTROL = "localhost:8010"
# Not the recording's: an archive that still records that stream would record the replay.
REPLAY_STREAM_ID = 19_795


class _Commands(Group):
    """`serve` is the command of options without one: `mainstem archive --dir tides`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


app = App(
    "Run an archive, and use one, Mainstem's or Java's: list, start, stop, replay, replicate and delete recordings.\n\n"
    "`serve` may be omitted: mainstem archive --dir tides. The other commands are clients of a running archive.",
    cls=_Commands,
)

ControlOption = Annotated[
    str, typer.Option("--control", metavar="URI", help="The control channel of the archive, or its HOST:PORT over UDP.")
]
AeronDirectoryOption = Annotated[
    str, typer.Option("--aeron-dir", metavar="PATH", help="The media driver's directory.", show_default="AERON_DIR")
]
WithDriverOption = Annotated[
    bool, typer.Option("--with-driver", help="Start a media driver in --aeron-dir for as long as this command runs.")
]
ResponseChannelOption = Annotated[
    str,
    typer.Option(
        "--response-channel",
        metavar="URI",
        help="Where the archive responds to: a channel, or HOST:PORT of this machine (port 0 = any free port).",
        show_default="localhost, or IPC",
    ),
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials-file",
        metavar="FILE",
        help="A file with a credential, such as user:password. The server accepts each line of its file.",
        show_default=f"the variable {CREDENTIALS_VARIABLE}",
    ),
]
RecordingArgument = Annotated[int, typer.Argument(help="The recording id.", min=0)]
COLUMNS = (
    Column("id", "right"),
    Column("stream", "right"),
    Column("session", "right"),
    Column("start", "right"),
    Column("end", "right"),
    Column("state"),
    Column("started"),
    Column("channel", "cut"),
)


@app.command("serve")
def serve(
    directory: Annotated[Path, typer.Option("--dir", metavar="PATH", help="Where the recordings are.")],
    aeron_directory: AeronDirectoryOption = "",
    control: ControlOption = CONTROL,
    with_driver: WithDriverOption = False,
    credentials_file: CredentialsOption = None,
    config: ConfigOption = "",
    set_: SetOption = None,
) -> None:
    """Run an archive: Aeron's own clients record streams into a directory, list and replay them.

    Whoever reaches --control may record, replay and delete everything, unless --credentials-file says who may connect. It
    listens on localhost by default. Settings come from the defaults, the table `archive` of the TOML file, the environment
    (AERON_ARCHIVE_...), then these options.

    Example: mainstem archive serve --dir tides --control 'aeron:udp?endpoint=localhost:8010'
    """
    _process.configure(logging.WARNING)
    raise_open_files_limit()
    options: dict[str, dict[str, object]] = {"--set": {**parse_pairs(set_, name="--set")}}
    if control != CONTROL:
        options["--control"] = {"control_channel": channel_of(control, "--control")}
    settings = ArchiveSettings.load(toml=config or None, options=options)
    accepted = _read_credentials(credentials_file)
    authenticator = CredentialTable({each: each.partition(b":")[0] for each in accepted.splitlines() if each})
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        if with_driver:
            aeron_directory = stack.enter_context(MediaDriver.launch(aeron_directory or None)).directory
        server = stack.enter_context(
            ArchiveServer.launch(
                directory, aeron_directory or None, settings=settings, authenticator=authenticator if accepted else None
            )
        )
        where = ", ".join(server.control_addresses) or settings.local_control_channel
        say(f"archive {server.settings.id} in {directory}, requests on {where}")
        while not stop.requested and not server.wait(CHECK_S):
            pass
        if server.error is not None:
            raise server.error


@app.command("ls")
def list_recordings(
    control: ControlOption = CONTROL,
    stream: StreamOption = None,
    channel: ChannelOption = "",
    since: SinceOption = "",
    until: UntilOption = "",
    response_channel: ResponseChannelOption = "",
    credentials_file: CredentialsOption = None,
    aeron_directory: AeronDirectoryOption = "",
    with_driver: WithDriverOption = False,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """List the recordings of an archive; --since and --until choose those that were recorded in that time.

    Example: mainstem archive ls --control localhost:8010
    """
    limits = [_epoch_ms(text, name) for text, name in ((since, "--since"), (until, "--until"))]
    with _session(control, response_channel, credentials_file, aeron_directory, with_driver, timeout) as client:
        found = client.list_recordings(timeout=timeout or None)
        rows = [_row(client, each, timeout) for each in found if _is_chosen(each, stream, channel, *limits)]
    if as_json:
        print_json(rows)
        return
    cells = [
        [
            str(row["recording_id"]),
            str(row["stream_id"]),
            str(row["session_id"]),
            number(row["start_position"]),
            number(row["end_position"]),
            row["state"],
            moment(row["start_timestamp"])[:19],
            row["channel"],
        ]
        for row in rows
    ]
    print_table(console(), Table(COLUMNS, cells))


@app.command("start")
def start(
    channel: ChannelArgument,
    stream: StreamArgument = None,
    stream_option: StreamIdOption = None,
    control: ControlOption = CONTROL,
    remote: Annotated[
        bool, typer.Option("--remote", help="Subscribe over the network, not to publications of the archive's driver.")
    ] = False,
    auto_stop: Annotated[bool, typer.Option("--auto-stop", help="Stop when the first recording ends.")] = False,
    extend: Annotated[
        int | None, typer.Option("--extend", metavar="ID", min=0, help="Continue this recording instead of a new one.")
    ] = None,
    response_channel: ResponseChannelOption = "",
    credentials_file: CredentialsOption = None,
    aeron_directory: AeronDirectoryOption = "",
    with_driver: WithDriverOption = False,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Have an archive record a stream. Each publication that the channel matches, now or later, is a recording.

    Example: mainstem archive start aeron:ipc 1001 --control localhost:8010
    """
    own_stream = stream_id(stream, stream_option)
    where = SourceLocation.REMOTE if remote else SourceLocation.LOCAL
    more: dict[str, Any] = {"auto_stop": auto_stop, "timeout": timeout or None}
    with _session(control, response_channel, credentials_file, aeron_directory, with_driver, timeout) as client:
        if extend is None:
            subscription_id = client.start_recording(channel, own_stream, where, **more)
        else:
            subscription_id = client.extend_recording(extend, channel, own_stream, where, **more)
    if as_json:
        print_json({"subscription_id": subscription_id})
    else:
        say(f"recording {channel} stream {own_stream}, by recording subscription {subscription_id}")


@app.command("stop")
def stop(
    channel: Annotated[str, typer.Argument(help="The channel that `start` was given.")] = "",
    stream: StreamArgument = None,
    stream_option: StreamIdOption = None,
    recording: RecordingOption = None,
    subscription: Annotated[
        int | None,
        typer.Option("--subscription", metavar="ID", help="The recording subscription that `start` printed."),
    ] = None,
    control: ControlOption = CONTROL,
    response_channel: ResponseChannelOption = "",
    credentials_file: CredentialsOption = None,
    aeron_directory: AeronDirectoryOption = "",
    with_driver: WithDriverOption = False,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Have an archive stop recording: a stream, a recording subscription, or one recording.

    Example: mainstem archive stop aeron:ipc 1001

    Example: mainstem archive stop --recording 7
    """
    if (bool(channel), recording is not None, subscription is not None).count(True) != 1:
        raise ConfigurationError("what should stop? name a channel and stream, a --recording, or a --subscription")
    own_stream = stream_id(stream, stream_option) if channel else 0
    with _session(control, response_channel, credentials_file, aeron_directory, with_driver, timeout) as client:
        if recording is not None:
            if not client.stop_recording_by_identity(recording, timeout=timeout or None):
                say(f"recording {recording} was not active")
                return
        elif subscription is not None:
            client.stop_recording_subscription(subscription, timeout=timeout or None)
        else:
            client.stop_recording(channel, own_stream, timeout=timeout or None)
    say("stopped")


@app.command("replay")
def replay(
    recording: RecordingArgument,
    control: ControlOption = CONTROL,
    position: Annotated[
        int | None,
        typer.Option("--from", metavar="POSITION", min=0, help="Where to begin.", show_default="the recording's start"),
    ] = None,
    length: Annotated[int, size("--length", help="How much to replay.", show_default="all")] = 0,
    follow: FollowOption = False,
    count: CountOption = 0,
    replay_channel: Annotated[
        str,
        typer.Option(
            "--replay-channel",
            metavar="URI",
            help="Where the archive replays to: a channel, or HOST:PORT of this machine.",
            show_default="as --response-channel",
        ),
    ] = "",
    output: OutputOption = "text",
    template: TemplateOption = "",
    codec: CodecOption = "",
    codec_option: CodecOptions = None,
    stats: StatsOption = False,
    response_channel: ResponseChannelOption = "",
    credentials_file: CredentialsOption = None,
    aeron_directory: AeronDirectoryOption = "",
    with_driver: WithDriverOption = False,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Print the messages of a recording, as `mainstem sub` prints those of a stream.

    It ends where the recording ends, or has come to by now; with --follow it goes on until the recording stops.

    Example: mainstem archive replay 7 --control localhost:8010 --output json

    Example: mainstem archive replay 7 --from 1048576 --length 64k
    """
    if follow and length:
        raise ConfigurationError("--follow and --length exclude one another")
    lay_out = layout(output, template, codec_of(codec, codec_option))
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        client = stack.enter_context(
            _session(control, response_channel, credentials_file, aeron_directory, with_driver, timeout)
        )
        described = _recording(client, recording, timeout)
        end = client.max_recorded_position(recording, timeout=timeout or None)
        if not follow and end == described.start_position:
            say(f"recording {recording} is empty")
            return
        channel = _replay_channel(replay_channel, response_channel, control)
        subscription = stack.enter_context(
            client.replay(
                recording,
                channel,
                REPLAY_STREAM_ID,
                position=position,
                length=length or None,
                follow=follow or bool(length),
                timeout=timeout or None,
            )
        )
        reader = _ReplayReader(subscription, stats, lay_out)
        try:
            reader.read(stop, count, exit_at_end=True, timeout=0.0 if follow else timeout)
        finally:
            reader.report_all()
        if not stop.requested and not count and not length:
            if follow:
                end = _stop_position(client, recording, end, timeout)
            _check_whole(client, recording, reader.position, end)


@app.command("replicate")
def replicate(
    recording: Annotated[int, typer.Argument(help="The recording id in the other archive.", min=0)],
    source: Annotated[str, typer.Argument(help="The control channel of the other archive, or its HOST:PORT over UDP.")],
    control: ControlOption = CONTROL,
    into: Annotated[
        int | None, typer.Option("--into", metavar="ID", min=0, help="Continue this recording instead of a new one.")
    ] = None,
    until_position: Annotated[
        int | None, typer.Option("--until-position", metavar="POSITION", min=0, help="Where to stop.")
    ] = None,
    live: Annotated[
        str, typer.Option("--live", metavar="URI", help="Join this live stream when the copy has caught up.")
    ] = "",
    source_credentials_file: Annotated[
        Path | None,
        typer.Option(
            "--source-credentials-file", metavar="FILE", help="A file with credentials for the other archive."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the copy is complete, or live.")] = True,
    response_channel: ResponseChannelOption = "",
    credentials_file: CredentialsOption = None,
    aeron_directory: AeronDirectoryOption = "",
    with_driver: WithDriverOption = False,
    timeout: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Have the archive at --control copy a recording of another archive, which it connects to itself.

    --timeout limits each request; the copy may take longer.

    Example: mainstem archive replicate 7 archive.example:8010 --control localhost:8010
    """
    source_channel = channel_of(source, "SOURCE")
    secret = _read_credentials(source_credentials_file, variable="")
    with (
        _session(control, response_channel, credentials_file, aeron_directory, with_driver, timeout) as client,
        stopping() as stop,
    ):
        replication_id = client.replicate(
            recording,
            source_channel,
            dst_recording_id=into,
            stop_position=until_position,
            live_destination=live,
            credentials=secret,
            timeout=timeout or None,
        )
        row: dict[str, Any] = {"replication_id": replication_id, "recording_id": into, "position": None, "signal": None}
        while wait and not stop.requested and row["signal"] not in ("REPLICATE_END", "MERGE"):
            with suppress(Timeout):
                event = next(client.events(timeout=CHECK_S))
                if isinstance(event, ArchiveError):
                    raise event
                if event.correlation_id == replication_id:
                    _note(row, event)
        if stop.requested:
            client.stop_replication(replication_id, timeout=timeout or None)
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
    position: Annotated[int, typer.Argument(help="The position at which the recording ends from now on.", min=0)],
    control: ControlOption = CONTROL,
    response_channel: ResponseChannelOption = "",
    credentials_file: CredentialsOption = None,
    aeron_directory: AeronDirectoryOption = "",
    with_driver: WithDriverOption = False,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Delete the end of a recording that has stopped.

    Example: mainstem archive truncate 7 1048576
    """
    with _session(control, response_channel, credentials_file, aeron_directory, with_driver, timeout) as client:
        files = client.truncate_recording(recording, position, timeout=timeout or None)
    say(f"recording {recording} ends at {position:,}; {files} segments deleted")


@app.command("purge")
def purge(
    recording: RecordingArgument,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="POSITION", min=0, help="Delete only the segments before this one's start."),
    ] = None,
    control: ControlOption = CONTROL,
    response_channel: ResponseChannelOption = "",
    credentials_file: CredentialsOption = None,
    aeron_directory: AeronDirectoryOption = "",
    with_driver: WithDriverOption = False,
    timeout: TimeoutOption = 10.0,
) -> None:
    """Delete a recording that has stopped, or with --before the first segments of any.

    Example: mainstem archive purge 7

    Example: mainstem archive purge 7 --before 1073741824
    """
    with _session(control, response_channel, credentials_file, aeron_directory, with_driver, timeout) as client:
        if before is None:
            files = client.purge_recording(recording, timeout=timeout or None)
        else:
            files = client.purge_segments(recording, before, timeout=timeout or None)
    say(f"{files} segments of recording {recording} deleted")


def channel_of(text: str, name: str) -> str:
    """The channel that a text names: a channel itself, or HOST:PORT. Raises ConfigurationError."""
    if text.startswith("aeron:"):
        return text
    host, separator, port = text.rpartition(":")
    if not host or not separator or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(
            f"{name}: {text!r} is neither a channel (aeron:udp?endpoint=localhost:8010) nor HOST:PORT"
        )
    return f"aeron:udp?endpoint={text}"


@contextmanager
def _session(
    control: str,
    response_channel: str,
    credentials_file: Path | None,
    aeron_directory: str,
    with_driver: bool,
    timeout: float,
) -> Iterator[Client]:
    channel = channel_of(control, "--control")
    responses = channel_of(response_channel, "--response-channel") if response_channel else None
    secret = _read_credentials(credentials_file)
    with ExitStack() as stack:
        if with_driver:
            aeron_directory = stack.enter_context(MediaDriver.launch(aeron_directory or None)).directory
        aeron = stack.enter_context(connect(aeron_directory, "archive"))
        yield stack.enter_context(
            connect_archive(
                channel,
                response_channel=responses,
                credentials=secret,
                client_name=f"mainstem-archive-{os.getpid()}",
                timeout=timeout or None,
                aeron=aeron,
            )
        )


def _read_credentials(path: Path | None, variable: str = CREDENTIALS_VARIABLE) -> bytes:
    if path is None:
        return os.environ.get(variable, "").encode() if variable else b""
    try:
        data = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigurationError(f"--credentials-file: {path}: {error.strerror}") from None
    if not data:
        raise ConfigurationError(f"--credentials-file: {path} holds no credentials: write a line with them")
    return data


def _epoch_ms(text: str, name: str) -> int | None:
    if text.isdecimal():
        raise ConfigurationError(
            f"{name}: an archive's recordings are chosen by a time or an age, not by a position ({text})"
        )
    return time_ns(text, name=name, now_ns=SYSTEM_CLOCK.epoch_ns()) // NS_PER_MS if text else None


def _is_chosen(
    recording: RecordingDescriptor, stream: int | None, channel: str, since_ms: int | None, until_ms: int | None
) -> bool:
    return (
        stream in (None, recording.stream_id)
        and channel in recording.original_channel
        and (since_ms is None or recording.stop_timestamp < 0 or recording.stop_timestamp >= since_ms)
        and (until_ms is None or recording.start_timestamp < until_ms)
    )


def _row(client: Client, recording: RecordingDescriptor, timeout: float) -> dict[str, Any]:
    end = recording.stop_position
    if end < 0:
        end = client.max_recorded_position(recording.recording_id, timeout=timeout or None)
    return {
        "recording_id": recording.recording_id,
        "stream_id": recording.stream_id,
        "session_id": recording.session_id,
        "channel": recording.original_channel,
        "source": recording.source_identity,
        "start_position": recording.start_position,
        "end_position": end,
        "state": "growing" if recording.stop_position < 0 else "ended",
        "start_timestamp": recording.start_timestamp,
        "stop_timestamp": recording.stop_timestamp,
    }


def _recording(client: Client, recording_id: int, timeout: float) -> RecordingDescriptor:
    found = client.list_recording(recording_id, timeout=timeout or None)
    if found is None:
        raise ConfigurationError(f"the archive has no recording {recording_id}; `mainstem archive ls` lists them")
    return found


def _replay_channel(text: str, response_channel: str, control: str) -> str:
    if text:
        return channel_of(text, "--replay-channel")
    if response_channel:
        return channel_of(response_channel, "--response-channel")
    return "aeron:ipc" if channel_of(control, "--control").startswith("aeron:ipc") else "aeron:udp?endpoint=localhost:0"


class _ReplayReader(Reader):
    """Reads a replay, and knows how far it came."""

    _image: Image | None = None

    @property
    def position(self) -> int | None:
        return None if self._image is None else self._image.position

    def _poll(self, limit: int) -> Any:
        if self._image is None:
            self._image = next(iter(self.subscription.images), None)
        return super()._poll(limit)


def _stop_position(client: Client, recording: int, end: int, timeout: float) -> int:
    """Where a recording that a replay followed has stopped; past its end if it has not."""
    deadline = Deadline(SYSTEM_CLOCK, STOPPED_S)
    while (stopped := client.stop_position(recording, timeout=timeout or None)) is None:
        if deadline.expired:
            return max(end, client.max_recorded_position(recording, timeout=timeout or None)) + 1
        time.sleep(EVENTS_S)
    return stopped


def _check_whole(client: Client, recording: int, position: int | None, end: int) -> None:
    """Raise what ended a replay before the end of its recording."""
    if position is not None and position >= end:
        return
    with suppress(Timeout):
        for event in client.events(timeout=EVENTS_S):
            if isinstance(event, ArchiveError):
                raise event
    raise ConnectionLost(
        f"the replay of recording {recording} ended at {number(position)}, before {end:,}; start again with --from",
        delivery=Delivery.UNKNOWN,
    )


def _note(row: dict[str, Any], event: Signal) -> None:
    row["signal"] = event.signal.name
    if event.recording_id >= 0:
        row["recording_id"] = event.recording_id
    if event.position >= 0 and event.signal in (RecordingSignal.SYNC, RecordingSignal.STOP, RecordingSignal.MERGE):
        row["position"] = event.position
