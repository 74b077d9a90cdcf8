"""Record a stream into a directory that `mainstem replay`, Spark and `mainstem ingest` read."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Self

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem._internal.file_modes import RECORDINGS_MODE, make_directory
from mainstem._internal.loop_thread import LoopThread
from mainstem._internal.open_files_limit import raise_open_files_limit
from mainstem._internal.pauses import GrowingPause
from mainstem.aeron.client.resource import raise_error_of
from mainstem.cli import ship
from mainstem.cli._drivers import connect
from mainstem.cli._options import (
    STREAM_HELP,
    DirectoryOption,
    ExitAtEndOption,
    InsecureOption,
    JsonOption,
    OutDirectoryOption,
    Shipping,
    StatsOption,
    TlsCertOption,
    TlsKeyOption,
    argument,
    flag,
    id_option,
    option,
    size,
    words_of,
)
from mainstem.cli._output import amount, print_json
from mainstem.cli._process import say, say_recovery, stopping
from mainstem.errors import ConfigurationError, RecordingError
from mainstem.recording.message_server import MessageLog, MessageRecorder, listen
from mainstem.recording.record_options import RecordOptions
from mainstem.recording.recorder import may_write_later

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mainstem.aeron.client import Subscription
    from mainstem.cli._process import Stop
    from mainstem.recording import Recorder

IDLE_S = 0.0005
POLL_S = 0.05
REPORT_NS = NS_PER_SECOND
# How long to wait for the shipper after the recorder has ended. Data that is left then is shipped the next time.
EXIT_TIMEOUT_S = 60.0
CHECK_NS = NS_PER_SECOND
FIRST_RESTART_S = 1.0
MAX_RESTART_S = 60.0


OPTIONS: dict[str, Any] = {
    "channel": argument("The channel to listen on, as in 'aeron:udp?endpoint=localhost:20121' or jmux://0.0.0.0:7000."),
    "out": OutDirectoryOption,
    "streams": id_option("--stream -s", STREAM_HELP, "0, but required for an Aeron channel"),
    "driver_directory": DirectoryOption,
    "segment_length": size("--segment-length", "The length of a segment file."),
    "durable": flag("--durable", "Sync each write to the device, so that recordings survive a power failure."),
    "exit_at_end": ExitAtEndOption,
    "file_mode": option("--file-mode", "MODE", "Permissions of the directory and its files.", "0750 if new"),
    "group": option("--group", "NAME", "The group of the directory and its files."),
    "stats": StatsOption,
    "keyed": flag("--keyed", "Messages of bymux, Jmux and Aqueduct begin with a key, as mainstem.channel's do."),
    "tls_cert": TlsCertOption,
    "tls_key": TlsKeyOption,
    "insecure": InsecureOption,
}


def run(
    *,
    options: Annotated[RecordOptions, OPTIONS],
    ship_to: Annotated[
        str, option("--ship-to", "TARGET", "Ship the recordings here meanwhile, as mainstem ship does.")
    ] = "",
    shipping: Shipping,
    as_json: JsonOption = False,
) -> None:
    """Record a stream into a directory that `mainstem replay`, Spark and `mainstem ingest` read.

    CHANNEL is an Aeron channel, or bymux://HOST:PORT, jmux://HOST:PORT or aqueduct://HOST:PORT to listen there as a server
    and record each message that arrives. Anyone who can connect can write, so beyond loopback these need TLS, or --insecure.
    --flush-interval, --local-retention and --store-option are for --ship-to.

    If it is killed and started again, it continues where it stopped, with each message once, as long as the driver still
    holds the stream for it (client liveness timeout, 10 s by default) or a RecorderSlot runs.

    Example: mainstem record 'aeron:udp?endpoint=localhost:20121' --stream 1001 --out tides
    """
    raise_open_files_limit()
    options.check()
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        # The stack exits this context last: the recordings are closed by then, and the shipper ships their ends.
        shipper = None
        if ship_to:
            words = words_of("ship", **asdict(shipping), beside_recorder=True)
            shipper = stack.enter_context(ShipProcess(options.out, ship_to, words))
        elif shipping.store_option:
            raise ConfigurationError(
                "--store-option needs --ship-to: it is for the store that recordings are shipped to"
            )
        if options.is_aeron:
            aeron = stack.enter_context(connect(options.driver_directory, "record"))
            subscriptions = [
                stack.enter_context(aeron.add_subscription(options.channel, each)) for each in options.streams
            ]
            recorder = stack.enter_context(options.open_recorder(say_recovery))
            say(f"listening on {options.channel}, stream {', '.join(map(str, options.streams))}")
            done = _record(options, recorder, subscriptions, stop, shipper)
        else:
            recorder = stack.enter_context(options.open_recorder(say_recovery))
            done = _serve(options, recorder, stop, shipper)
        if as_json:
            print_json(done)
        else:
            seconds = max(done["seconds"], 1e-9)
            rate = amount(done["messages"] / seconds, done["bytes"] / seconds).strip()
            if done.get("delayed"):
                say(f"{done['delayed']:,} streams were delayed, {done['unrecorded']:,} of which were not recorded")
            say(f"recorded {done['messages']:,} messages, {done['bytes']:,} bytes of the stream: {rate}")
        if recorder.failures:
            raise RecordingError(f"not everything was recorded: {recorder.failures} failures are in the log above")


def _record(
    options: RecordOptions,
    recorder: Recorder,
    subscriptions: list[Subscription],
    stop: Stop,
    shipper: ShipProcess | None,
) -> dict[str, Any]:
    for subscription in subscriptions:
        recorder.add_subscription(subscription)
    begin_ns = last_ns = SYSTEM_CLOCK.monotonic_ns()
    nbytes = shown = 0
    while not stop.requested:
        moved = _work(recorder)
        nbytes += moved
        if not moved:
            if options.exit_at_end and all(_is_over(recorder, subscription) for subscription in subscriptions):
                break
            for subscription in subscriptions:
                raise_error_of(subscription)
            time.sleep(IDLE_S)
        if shipper is not None:
            shipper.poll()
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        if options.stats and now_ns - last_ns >= REPORT_NS:
            waiting = f"  {recorder.unrecorded:,} streams not recorded" if recorder.unrecorded else ""
            say(f"{(nbytes - shown) / (now_ns - last_ns) * 1e3:10,.3f} MB/s  {nbytes / 1e6:14,.3f} MB{waiting}")
            shown, last_ns = nbytes, now_ns
    written = recorder.written
    done = _result(sum(written.values()), nbytes, begin_ns, sorted(written))
    return done | {"delayed": recorder.delayed, "unrecorded": recorder.unrecorded}


def _work(recorder: Recorder) -> int:
    """Record what is available. A stream that cannot be recorded does not end the recorder, which has logged why.

    That of ``mainstem.live`` does end: its query would miss rows and not say so.
    """
    before = recorder.failures
    try:
        return recorder.do_work()
    except Exception as error:
        if recorder.failures == before or may_write_later(error):
            raise
        return 0


def _is_over(recorder: Recorder, subscription: Subscription) -> bool:
    """Whether every stream of a subscription has ended, or cannot be recorded."""
    images = subscription.images
    if not any(recorder.has_failed(image) for image in images):
        return subscription.is_end_of_stream
    return all(image.is_end_of_stream or recorder.has_failed(image) for image in images)


def _serve(options: RecordOptions, recorder: Recorder, stop: Stop, shipper: ShipProcess | None) -> dict[str, Any]:
    log = MessageLog(recorder, stream_id=options.streams[0] if options.streams else 0, channel=options.channel)
    begin_ns, begin, before = SYSTEM_CLOCK.monotonic_ns(), log.position, log.writer.messages
    url, intake = options.server, MessageRecorder(log, keyed=options.keyed)
    thread = LoopThread("mainstem-record")
    try:
        server = thread.run(listen(url.scheme, url.hostname or "", url.port or 0, intake, **options.server_options))
        say(f"listening on {url.scheme}://{url.hostname}:{server.port}")
        while not stop.requested:
            time.sleep(POLL_S)
            recorder.do_work()  # it has no subscription, but keeps its mark on the directory fresh
            if shipper is not None:
                shipper.poll()
        thread.run(server.close())
    finally:
        thread.stop()
    return _result(log.writer.messages - before, log.position - begin, begin_ns, [log.writer.descriptor.recording_id])


def _result(messages: int, nbytes: int, begin_ns: int, recordings: list[int]) -> dict[str, Any]:
    seconds = (SYSTEM_CLOCK.monotonic_ns() - begin_ns) / NS_PER_SECOND
    return {"messages": messages, "bytes": nbytes, "seconds": round(seconds, 3), "recordings": recordings}


class ShipProcess:
    """A context manager that runs `mainstem ship` in its own process, so that shipping does not slow down the recorder.

    It is entered before the recorder starts, and exited after the recorder has closed its recordings. The shipper's standard input
    ties the two together: if the recorder closes it, or dies, the shipper ships what is left and exits.
    """

    def __init__(self, directory: Path, url: str, arguments: Sequence[str]) -> None:
        self._directory, self._url = directory, url
        self._command = [
            sys.executable, "-m", "mainstem", "ship", str(directory), url, *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._checked_ns = 0
        self._restart_ns: int | None = None
        self._pause = GrowingPause(FIRST_RESTART_S, MAX_RESTART_S, random.Random())

    def __enter__(self) -> Self:
        make_directory(self._directory, default=RECORDINGS_MODE)
        process = self._start()
        assert process.stdout is not None
        if process.stdout.readline().strip() != ship.READY.encode():
            process.wait()
            raise ConfigurationError(f"--ship-to: {self._url} cannot be shipped to")
        return self

    def _start(self) -> subprocess.Popen[bytes]:
        # With its own process group, Ctrl-C reaches only the recorder, which ends the shipper once it has closed its recordings.
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        return self._process

    def poll(self) -> None:
        """Restart the shipper if it has died. Call this often."""
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        if now_ns - self._checked_ns < CHECK_NS:
            return
        self._checked_ns = now_ns
        if self._restart_ns is not None:
            if now_ns >= self._restart_ns:
                self._restart_ns = None
                self._start()
        elif self._process is not None and self._process.poll() is not None:
            say(f"mainstem record: the shipper exited with status {self._process.returncode}; restarting it")
            self._process = None
            self._restart_ns = now_ns + round(self._pause.next_s() * NS_PER_SECOND)

    def __exit__(self, *_: object) -> None:
        process = self._process if self._process is not None else self._start()
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(EXIT_TIMEOUT_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.terminate()
            process.wait()
        if process.returncode != 0:
            say(f"not all of {self._directory} is shipped: `mainstem ship {self._directory} {self._url} --once`")
