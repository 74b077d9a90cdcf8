"""Record a stream: into a directory that replays, Spark and `mainstem ingest` read."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import SplitResult, urlsplit

import typer

from mainstem._internal.loop_thread import LoopThread
from mainstem._internal.open_files_limit import raise_open_files_limit
from mainstem.access import parse_mode
from mainstem.aeron.client.resource import raise_error_of
from mainstem.cli._channels import check_subscription
from mainstem.cli._directory import INT32, DirectoryOption, JsonOption
from mainstem.cli._logs import say
from mainstem.cli._ship_process import ShipProcess
from mainstem.cli._store_options import StoreOptions  # noqa: TC001 - typer reads the annotations
from mainstem.cli._stream import amount, connect, stopping
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.recording.message_log import MessageLog
from mainstem.recording.message_server import Intake, listen
from mainstem.recording.recorder import DEFAULT_SEGMENT_LENGTH
from mainstem.units import parse_size

if TYPE_CHECKING:
    from mainstem.aeron.client import Subscription
    from mainstem.cli._stream import Stop

IDLE_S = 0.0005
POLL_S = 0.05
REPORT_NS = NS_PER_SECOND


def run(
    channel: Annotated[str, typer.Argument(help="The channel to listen on, as in aeron:udp?endpoint=:20121.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory of the recordings; it may hold some.")],
    stream: Annotated[
        list[int] | None,
        typer.Option("--stream", "-s", help="The stream id; repeatable. For bymux and the like: 0.", **INT32),
    ] = None,
    directory: DirectoryOption = "",
    segment_length: Annotated[str, typer.Option(help="The length of a segment file, as in 128m.")] = str(
        DEFAULT_SEGMENT_LENGTH
    ),
    durable: Annotated[
        bool, typer.Option("--durable", help="Survive the loss of power: wait for the device before a position counts.")
    ] = False,
    until_end: Annotated[
        bool, typer.Option("--end", "-e", help="End when every publisher has ended its stream.")
    ] = False,
    mode: Annotated[
        str, typer.Option(help="The mode of the directory of the recordings; files have it too. New: 0750.")
    ] = "",
    group: Annotated[str, typer.Option(help="The group of the directory and its files.")] = "",
    rates: Annotated[bool, typer.Option("--rate", "-r", help="Report rates each second.")] = False,
    keyed: Annotated[
        bool,
        typer.Option("--keyed", help="Messages of bymux and the like have a key in front (mainstem.channel's have)."),
    ] = False,
    certificate: Annotated[str, typer.Option(help="The certificate of an Aqueduct server (PEM).")] = "",
    key: Annotated[str, typer.Option(help="Its key (PEM).")] = "",
    ship_to: Annotated[str, typer.Option(help="Ship the recordings there meanwhile, as mainstem ship does.")] = "",
    roll_after: Annotated[str, typer.Option(help="With --ship-to: as of mainstem ship.")] = "10s",
    keep: Annotated[str, typer.Option(help="With --ship-to: as of mainstem ship.")] = "",
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Record a stream: into a directory that replays, Spark and `mainstem ingest` read.

    CHANNEL is one of Aeron's; or bymux://HOST:PORT, jmux://HOST:PORT or aqueduct://HOST:PORT, to listen there as a server and
    record each message that comes.

    Killed and started again it continues where it was, each message once, while the driver still holds the stream for it
    (client liveness timeout, 10 s by default) or a PositionHold runs.

    Example: mainstem record aeron:udp?endpoint=localhost:20121 --stream 1001 --out tides
    """
    raise_open_files_limit()
    length = parse_size(segment_length, name="--segment-length")
    access: dict[str, Any] = {"mode": parse_mode(mode, name="--mode"), "group": group}
    streams = stream or []
    if channel.startswith("aeron"):
        check_subscription(channel)
        if not streams:
            raise ConfigurationError("--stream: an Aeron channel has streams; choose one or more")
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        # Left last: the recordings are closed then, and it ships their ends.
        ship = stack.enter_context(_shipping(out, ship_to, roll_after, keep, option)) if ship_to else None
        if channel.startswith("aeron:"):
            aeron = stack.enter_context(connect(directory, "record"))
            subscriptions = [stack.enter_context(aeron.add_subscription(channel, each)) for each in streams]
            recorder = stack.enter_context(Recorder(out, segment_length=length, durable=durable, **access))
            say(f"listening on {channel}, stream {', '.join(map(str, streams))}")
            done = _record(recorder, subscriptions, stop, until_end, rates, ship)
        else:
            recorder = stack.enter_context(Recorder(out, segment_length=length, durable=durable, **access))
            log = MessageLog(recorder, stream_id=streams[0] if streams else 0, channel=channel)
            options = {"certificate": certificate, "key": key} if certificate else {}
            done = _listen(channel, recorder, log, stop, keyed, options, ship)
        if as_json:
            print(json.dumps(done))
        else:
            seconds = max(done["seconds"], 1e-9)
            rate = amount(done["messages"] / seconds, done["bytes"] / seconds).strip()
            if done.get("delayed"):
                say(f"{done['delayed']:,} streams had to wait, of which {done['unrecorded']:,} were not recorded")
            say(f"recorded {done['messages']:,} messages, {done['bytes']:,} bytes of the stream: {rate}")


def _record(
    recorder: Recorder,
    subscriptions: list[Subscription],
    stop: Stop,
    until_end: bool,
    rates: bool,
    ship: ShipProcess | None,
) -> dict[str, Any]:
    for subscription in subscriptions:
        recorder.add_subscription(subscription)
    begin_ns = last_ns = SYSTEM_CLOCK.monotonic_ns()
    octets = shown = 0
    while not stop.asked:
        moved = recorder.do_work()
        octets += moved
        if not moved:
            if until_end and all(subscription.is_end_of_stream for subscription in subscriptions):
                break
            for subscription in subscriptions:
                raise_error_of(subscription)
            time.sleep(IDLE_S)
        if ship is not None:
            ship.poll()
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        if rates and now_ns - last_ns >= REPORT_NS:
            waiting = f"  {recorder.unrecorded:,} streams not recorded" if recorder.unrecorded else ""
            say(f"{(octets - shown) / (now_ns - last_ns) * 1e3:10,.3f} MB/s  {octets / 1e6:14,.3f} MB{waiting}")
            shown, last_ns = octets, now_ns
    written = recorder.written
    done = _result(sum(written.values()), octets, begin_ns, sorted(written))
    return done | {"delayed": recorder.delayed, "unrecorded": recorder.unrecorded}


def _listen(
    channel: str,
    recorder: Recorder,
    log: MessageLog,
    stop: Stop,
    keyed: bool,
    options: dict[str, str],
    ship: ShipProcess | None,
) -> dict[str, Any]:
    parts, port = _parse(channel)
    begin_ns, begin, before = SYSTEM_CLOCK.monotonic_ns(), log.position, log.writer.messages
    thread = LoopThread("mainstem-record")
    try:
        intake = Intake(log, keyed=keyed)
        server = thread.run(listen(parts.scheme, parts.hostname or "", port, intake, **options))
        say(f"listening on {parts.scheme}://{parts.hostname}:{server.port}")
        while not stop.asked:
            time.sleep(POLL_S)
            recorder.do_work()  # has no subscription: keeps its mark on the directory fresh
            if ship is not None:
                ship.poll()
        thread.run(server.close())
    finally:
        thread.stop()
    return _result(log.writer.messages - before, log.position - begin, begin_ns, [log.writer.descriptor.recording_id])


def _shipping(out: Path, url: str, roll_after: str, keep: str, option: list[str] | None) -> ShipProcess:
    arguments = ["--roll-after", roll_after]
    if keep:
        arguments += ["--keep", keep]
    for text in option or []:
        arguments += ["--option", text]
    return ShipProcess(out, url, arguments)


def _parse(channel: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(channel)
        return parts, parts.port or 0
    except ValueError as error:
        raise ConfigurationError(f"channel {channel!r}: {error}") from None


def _result(messages: int, octets: int, begin_ns: int, recordings: list[int]) -> dict[str, Any]:
    seconds = (SYSTEM_CLOCK.monotonic_ns() - begin_ns) / NS_PER_SECOND
    return {"messages": messages, "bytes": octets, "seconds": round(seconds, 3), "recordings": recordings}
