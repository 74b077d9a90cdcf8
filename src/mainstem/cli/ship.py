"""Ship a recorder's directory into a store: a bucket, a file system, another directory."""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem.cli._directory import JsonOption  # noqa: TC001 - typer reads the annotations
from mainstem.cli._logs import say
from mainstem.cli._store_options import StoreOptions, options_of
from mainstem.cli._stream import stopping
from mainstem.clock import NS_PER_SECOND, SYSTEM_CLOCK
from mainstem.errors import ConfigurationError, RecordingError, StoreError
from mainstem.metrics import render_families, shipping_families
from mainstem.metrics.page_server import PageServer
from mainstem.recording.shipping.local_retention import Keep
from mainstem.recording.shipping.retrying_store import RetryingStore, ShippingEnded
from mainstem.recording.shipping.shipper import (
    DEFAULT_PIECE_LENGTH,
    DEFAULT_UPLOADS,
    MAX_PIECE_LENGTH,
    MIN_PIECE_LENGTH,
    ArchiveShipper,
    ShippingOptions,
)
from mainstem.recording.shipping.status import ShippingCounts
from mainstem.store import open_store
from mainstem.units import format_size, parse_duration_ns, parse_size

if TYPE_CHECKING:
    from mainstem.cli._stream import Stop

POLL_S = 0.2
# After a signal a request that is under way has so long.
END_WAIT_NS = 5 * NS_PER_SECOND
# Beside a recorder: a busy machine gives the recorder and its driver seventy times as much, an idle one is used.
NICENESS = 19
READY = "ready"
# With --once, of each call, beside the retries of the store itself: eight of what may pass, a quarter of a minute in all.
ONCE_ATTEMPTS = 2


def run(
    directory: Annotated[Path, typer.Argument(help="A recorder's directory, or Aeron Archive's.")],
    url: Annotated[str, typer.Argument(help="Where to, as in s3://bucket/tides or /mnt/archive.")],
    roll_after: Annotated[
        str, typer.Option(help="What is recorded is in the store after so long, though its segment is open.")
    ] = "10s",
    once: Annotated[bool, typer.Option("--once", help="Ship what is recorded now, and end.")] = False,
    keep: Annotated[
        str, typer.Option(help="Delete local segments that are shipped and older (24h, 7d), or beyond a size (100g).")
    ] = "",
    bandwidth: Annotated[str, typer.Option(help="Bytes a second to put at most, as in 10m.")] = "",
    piece_length: Annotated[str, typer.Option(help="Bytes of an object at most.")] = format_size(DEFAULT_PIECE_LENGTH),
    uploads: Annotated[int, typer.Option(min=1, max=64, help="Objects that are put at once.")] = DEFAULT_UPLOADS,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Read each object back and compare its checksum.")
    ] = True,
    listen: Annotated[str, typer.Option("--listen", "-l", help="Serve metrics at HOST:PORT, path /metrics.")] = "",
    option: StoreOptions = None,
    as_json: JsonOption = False,
    beside_recorder: Annotated[bool, typer.Option("--beside-recorder", hidden=True)] = False,
) -> None:
    """Ship a recorder's directory into a store: a bucket, a file system, another directory.

    Runs beside the recorder, until Ctrl-C, and waits for a store that is away; with --once it ends with an error when the
    store cannot be used. Killed and started again it goes on where it was, each byte once. `mainstem recordings` lists what
    is there; whatever reads recordings reads the URL.

    Example: mainstem ship tides s3://bucket/tides
    """
    options = _options(roll_after, keep, bandwidth, piece_length, uploads, verify)
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is no directory")
    counts = ShippingCounts()
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        ending = Ending(stop)
        store = open_store(url, options_of(option))
        stack.callback(store.close)
        retrying = RetryingStore(
            store,
            clock=SYSTEM_CLOCK,
            rng=random.Random(),
            counts=counts,
            ends=ending.is_over,
            attempts=ONCE_ATTEMPTS if once else None,
        )
        shipper = ArchiveShipper(
            directory, retrying, options, clock=SYSTEM_CLOCK, counts=counts, stops=lambda: stop.asked, pause=time.sleep
        )
        stack.callback(shipper.close)
        if listen:

            def page() -> str:
                return render_families(shipping_families(shipper.status()))

            server = stack.enter_context(PageServer(listen, page, name="--listen"))
            say(f"serving {server.url}")
        say(f"shipping {directory} to {url} as archive {shipper.identity.id}")
        drains = threading.Event()
        if beside_recorder:
            _give_way()
            print(READY, flush=True)
            threading.Thread(target=_until_end_of_input, args=(drains,), daemon=True).start()
        complete = _ship(shipper, stop, once, drains)
        result = _result(shipper)
    if as_json:
        print(json.dumps(result))
    else:
        say(
            f"shipped {result['bytes_shipped']:,} bytes in {result['objects']:,} objects; {result['lag_bytes']:,} bytes wait"
        )
    if shipper.blocked and (once or drains.is_set()):
        raise RecordingError("; ".join(shipper.blocked))
    if not complete and (once or drains.is_set()):
        raise StoreError(url, "not everything was shipped")


class Ending:
    """Whether requests that are under way are given up: some time after a signal."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._asked_ns: int | None = None

    def is_over(self) -> bool:
        """Called often, by several threads."""
        if not self._stop.asked:
            return False
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        if self._asked_ns is None:
            self._asked_ns = now_ns
        return now_ns - self._asked_ns >= END_WAIT_NS


def _options(
    roll_after: str, keep: str, bandwidth: str, piece_length: str, uploads: int, verify: bool
) -> ShippingOptions:
    length = parse_size(piece_length, name="--piece-length")
    rate = parse_size(bandwidth, name="--bandwidth") if bandwidth else None
    if not MIN_PIECE_LENGTH <= length <= MAX_PIECE_LENGTH:
        limits = f"{format_size(MIN_PIECE_LENGTH)} and {format_size(MAX_PIECE_LENGTH)}"
        raise ConfigurationError(f"--piece-length: {piece_length!r} is not between {limits}")
    if rate is not None and rate < 1024:
        raise ConfigurationError(f"--bandwidth: {bandwidth!r} is less than 1k a second")
    if rate is not None:
        # A piece goes out at once: none is longer than a second's worth.
        length = max(min(length, rate), MIN_PIECE_LENGTH)
    return ShippingOptions(
        roll_after_ns=parse_duration_ns(roll_after, name="--roll-after"),
        piece_length=length,
        uploads=uploads,
        bytes_per_second=rate,
        keep=Keep.parse(keep) if keep else None,
        verify=verify,
    )


def _give_way() -> None:
    """Leaves the processors to the recorder, as far as the system lets it."""
    os.nice(NICENESS)
    if hasattr(os, "sched_setscheduler"):
        # It does not interrupt what runs when its data arrives. What was started as an idle task may not leave its class.
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _until_end_of_input(drains: threading.Event) -> None:
    # The recorder that started this has the other end, and closes it, or dies.
    sys.stdin.buffer.read()
    drains.set()


def _ship(shipper: ArchiveShipper, stop: Stop, once: bool, drains: threading.Event) -> bool:
    """Ships until it is asked to end; whether nothing was left under way."""
    try:
        while not stop.asked:
            try:
                if once or drains.is_set():
                    shipper.drain()
                    return True
                moved = shipper.do_work()
            except StoreError as error:
                if once:
                    raise
                shipper.counts.failed(str(error))
                say(f"mainstem ship: {error}")
                moved = 0
            if moved:
                say(_line(shipper, moved))
            else:
                _sleep(stop, drains)
    except ShippingEnded as error:
        say(f"mainstem ship: {error}")
        return False
    return True


def _sleep(stop: Stop, drains: threading.Event) -> None:
    if not stop.asked and not drains.is_set():
        time.sleep(POLL_S)


def _line(shipper: ArchiveShipper, moved: int) -> str:
    status = shipper.status()
    return (
        f"manifest {status.manifest}: {moved:,} bytes; {status.counts.bytes_shipped:,} in {status.counts.objects:,} objects"
        f" so far; {status.lag_bytes:,} bytes wait, {status.lag_seconds:.1f} s"
    )


def _result(shipper: ArchiveShipper) -> dict[str, Any]:
    status = shipper.status()
    counts = status.counts
    return {
        "archive": status.archive_id,
        "url": status.url,
        "manifest": status.manifest,
        "commits": counts.commits,
        "objects": counts.objects,
        "bytes_shipped": counts.bytes_shipped,
        "errors": counts.errors,
        "retries": counts.retries,
        "lost_bytes": counts.lost_bytes,
        "segments_deleted": counts.segments_deleted,
        "lag_bytes": status.lag_bytes,
        "last_error": counts.last_error,
    }
