"""Ship recordings: copy them to an object store or another directory while they grow."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem._internal.clock import NS_PER_SECOND, SYSTEM_CLOCK, seconds_ns
from mainstem.cli._options import (
    InsecureOption,
    JsonOption,
    MetricsListenOption,
    Shipping,
    argument,
    flag,
    integer,
    size,
    store_options,
)
from mainstem.cli._output import pick, print_json
from mainstem.cli._process import say, stopping
from mainstem.errors import ConfigurationError, RecordingError, StoreError
from mainstem.metrics import render_families, shipping_families
from mainstem.metrics.page_server import PageServer
from mainstem.recording.shipping.local_retention import LocalRetention
from mainstem.recording.shipping.retrying_store import RetryingStore, ShippingEnded
from mainstem.recording.shipping.shipper import (
    DEFAULT_CHUNK_SIZE,
    DEFAULT_UPLOADS,
    MAX_CHUNK_SIZE,
    MIN_CHUNK_SIZE,
    ArchiveShipper,
    ShippingOptions,
)
from mainstem.recording.shipping.status import ShippingStats
from mainstem.store import open_store
from mainstem.store.open_store import HTTP_SCHEMES, scheme_of

if TYPE_CHECKING:
    from mainstem.cli._process import Stop

POLL_S = 0.2
# How long a request in progress can take after a signal.
END_WAIT_NS = 5 * NS_PER_SECOND
# Used beside a recorder: a busy host gives the recorder and its driver seventy times as much CPU time; an idle host is used fully.
NICENESS = 19
READY = "ready"
# Attempts per call with --once. On transient errors, each includes the store's own retries: eight attempts, up to 15 s of waiting.
ONCE_ATTEMPTS = 2


def run(
    directory: Annotated[
        Path, argument("A local directory of recordings, of Mainstem's recorder or Aeron Archive.", "LOCATION")
    ],
    url: Annotated[str, argument("Path or URL to copy them to, as in s3://bucket/tides or /mnt/archive.", "TARGET")],
    shipping: Shipping,
    once: Annotated[bool, flag("--once", "Ship what is recorded now, and exit.")] = False,
    bandwidth_limit: Annotated[
        int | None, size("--bandwidth-limit", "Upload at most this many bytes a second.", "no limit", minimum=1024)
    ] = None,
    chunk_size: Annotated[
        int,
        size(
            "--chunk-size",
            "The maximum size of an object of a growing segment.",
            minimum=MIN_CHUNK_SIZE,
            maximum=MAX_CHUNK_SIZE,
        ),
    ] = DEFAULT_CHUNK_SIZE,
    upload_concurrency: Annotated[
        int, integer("--upload-concurrency", "Upload this many objects at a time.", minimum=1, max=64)
    ] = DEFAULT_UPLOADS,
    verify: Annotated[bool, flag("--verify/--no-verify", "Read each object back and compare its checksum.")] = True,
    metrics_listen: MetricsListenOption = "",
    insecure: InsecureOption = False,
    as_json: JsonOption = False,
    beside_recorder: Annotated[bool, typer.Option("--beside-recorder", hidden=True)] = False,
) -> None:
    """Ship recordings: copy them to an object store or another directory while they grow.

    It runs until Ctrl-C and retries when the store is unreachable; with --once it fails instead. If it is killed and
    started again, it continues where it stopped. `mainstem recordings ls TARGET` lists what is there, and everything
    that reads recordings reads TARGET.

    Example: mainstem ship tides s3://bucket/tides
    """
    if bandwidth_limit is not None:
        # A chunk is sent without a break, so limit it to one second of bandwidth.
        chunk_size = max(min(chunk_size, bandwidth_limit), MIN_CHUNK_SIZE)
    retention = shipping.local_retention
    options = ShippingOptions(
        roll_after_ns=seconds_ns(shipping.flush_interval),
        chunk_size=chunk_size,
        uploads=upload_concurrency,
        bytes_per_second=bandwidth_limit,
        keep=LocalRetention.parse(retention, name="--local-retention") if retention else None,
        verify=verify,
    )
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is not a directory")
    if scheme_of(url) in HTTP_SCHEMES:
        raise ConfigurationError(f"{url}: http(s):// is read-only; ship to a directory or an object store")
    counts = ShippingStats()
    with ExitStack() as stack:
        stop = stack.enter_context(stopping())
        deadline = ShutdownDeadline(stop)
        store = open_store(url, store_options(shipping.store_option, url))
        stack.callback(store.close)
        retrying = RetryingStore(
            store,
            clock=SYSTEM_CLOCK,
            rng=random.Random(),
            counts=counts,
            ends=deadline.is_over,
            attempts=ONCE_ATTEMPTS if once else None,
        )
        shipper = ArchiveShipper(
            directory,
            retrying,
            options,
            clock=SYSTEM_CLOCK,
            counts=counts,
            stops=lambda: stop.requested,
            pause=time.sleep,
        )
        stack.callback(shipper.close)
        if metrics_listen:

            def page() -> str:
                return render_families(shipping_families(shipper.status()))

            server = stack.enter_context(PageServer(metrics_listen, page, name="--metrics-listen", insecure=insecure))
            say(f"serving {server.url}")
        say(f"shipping {directory} to {url} as archive {shipper.identity.id}")
        drains = threading.Event()
        if beside_recorder:
            _give_way()
            print(READY, flush=True)
            threading.Thread(target=_until_end_of_input, args=(drains,), daemon=True).start()
        complete = _ship(shipper, stop, once, drains)
        result = _result(shipper)
    text = "shipped {bytes_shipped:,} bytes in {objects:,} objects; {lag_bytes:,} bytes wait".format_map(result)
    print_json(result) if as_json else say(text)
    if shipper.blocked and (once or drains.is_set()):
        raise RecordingError("; ".join(shipper.blocked))
    if not complete and (once or drains.is_set()):
        raise StoreError(url, "not everything was shipped")


class ShutdownDeadline:
    """Decides when to give up requests that are in progress: ``END_WAIT_NS`` after a signal."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._requested_ns: int | None = None

    def is_over(self) -> bool:
        """Return whether the time is over. Several threads call this often."""
        if not self._stop.requested:
            return False
        now_ns = SYSTEM_CLOCK.monotonic_ns()
        if self._requested_ns is None:
            self._requested_ns = now_ns
        return now_ns - self._requested_ns >= END_WAIT_NS


def _give_way() -> None:
    """Yield CPU time to the recorder, as far as the system allows."""
    os.nice(NICENESS)
    if hasattr(os, "sched_setscheduler"):
        # A batch task does not preempt running tasks when its data arrives. An idle task is not allowed to change its class.
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _until_end_of_input(drains: threading.Event) -> None:
    # The recorder that started this process has the other end. Reading ends when it closes that end or dies.
    sys.stdin.buffer.read()
    drains.set()


def _ship(shipper: ArchiveShipper, stop: Stop, once: bool, drains: threading.Event) -> bool:
    """Ship until asked to stop; return False if shipping ended while the store did not respond."""
    try:
        while not stop.requested:
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
                drains.wait(POLL_S)
    except ShippingEnded as error:
        say(f"mainstem ship: {error}")
        return False
    return True


def _line(shipper: ArchiveShipper, moved: int) -> str:
    status = shipper.status()
    return (
        f"manifest {status.manifest}: {moved:,} bytes; {status.counts.bytes_shipped:,} in {status.counts.objects:,} objects"
        f" so far; {status.lag_bytes:,} bytes wait, {status.lag_seconds:.1f} s"
    )


def _result(shipper: ArchiveShipper) -> dict[str, Any]:
    status = shipper.status()
    return {
        "archive": status.archive_id,
        "url": status.url,
        "manifest": status.manifest,
        **pick(status.counts, "commits objects bytes_shipped errors retries lost_bytes segments_deleted last_error"),
        "lag_bytes": status.lag_bytes,
    }
