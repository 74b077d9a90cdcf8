"""A store whose calls are retried until they succeed or shipping ends.

The store's own retries give up within minutes, but an outage can last for hours. ``mainstem ship --once`` limits the attempts,
because a store that does not exist, or that denies access, would otherwise be retried forever.

Each call runs in a thread of its own, because client libraries neither time out reliably nor return on a signal. A call that takes
too long is abandoned and counts as failed. At most ``MAX_OVERDUE`` such calls exist at once, so an outage costs no more than that
many threads. It is harmless if an abandoned call completes late: an object is never written again with different bytes, and
manifests are put if absent.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem._internal.clock import NS_PER_SECOND
from mainstem.errors import MainstemError, StoreError
from mainstem.store.retry import Retry
from mainstem.store.threads import Call

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainstem._internal.clock import Clock
    from mainstem.recording.shipping.status import ShippingStats
    from mainstem.store import Store, StoredFile

log = logging.getLogger("mainstem.recording")

T = TypeVar("T")

FIRST_WAIT_S = 0.2
MAX_WAIT_S = 20.0
# The timeout of a request without data. A request with data has one more second for each 64 KiB.
CALL_TIMEOUT_S = 60.0
SLOWEST_BYTES_PER_S = 64 << 10
MAX_OVERDUE = 8
# How often a waiting call checks whether shipping has ended, in seconds.
CHECK_S = 0.05
# The interval between log lines during an outage.
LOG_INTERVAL_NS = 60 * NS_PER_SECOND


class ShippingEnded(MainstemError):
    """Shipping ended while the store did not respond. The next shipper ships the uncommitted data."""


class RetryingStore:
    """A ``Store`` that retries the calls of another one.

    ``ends`` returns whether to give up. It is called often, and by several threads. ``attempts`` limits the attempts per call; None
    means no limit.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        rng: random.Random,
        counts: ShippingStats,
        ends: Callable[[], bool],
        timeout_s: float = CALL_TIMEOUT_S,
        first_wait_s: float = FIRST_WAIT_S,
        max_wait_s: float = MAX_WAIT_S,
        attempts: int | None = None,
    ) -> None:
        self.inner, self.url, self.local_path, self.close = store, store.url, store.local_path, store.close
        self._clock, self._counts, self._ends, self._timeout_s = clock, counts, ends, timeout_s
        self._retry = Retry(
            attempts, first_wait_s, max_wait_s, retry_on=(StoreError, OSError), sleep=self._wait_to_retry, rng=rng
        )
        self._never = threading.Event()  # never set: waiting for it is a sleep
        self._overdue: list[Call] = []
        self._logged_ns: int | None = None
        self._is_away = False

    def with_retries(self, what: str, nbytes: int, function: Callable[..., T], *arguments: Any) -> T:
        """Call ``function``, which transfers ``nbytes``, until it succeeds.

        Raises FileNotFoundError immediately, and StoreError after the last attempt.
        """

        def attempt() -> T:
            try:
                result: T = self._call(what, self._timeout_s + nbytes / SLOWEST_BYTES_PER_S, function, *arguments)
            except FileNotFoundError:
                raise
            except (StoreError, OSError) as error:
                self._failed(what, error)
                raise
            self._counts.responded()
            if self._is_away:
                self._is_away = False
                log.warning("%s responds again", self.url)
            return result

        return self._retry.call(attempt, self.url, what)

    def _call(self, what: str, timeout_s: float, function: Callable[..., T], *arguments: Any) -> T:
        while sum(not call.wait(0) for call in self._overdue) >= MAX_OVERDUE:
            self._sleep(CHECK_S)
        self._overdue = [call for call in self._overdue if not call.wait(0)]
        call = Call(function, *arguments)
        deadline_ns = self._clock.monotonic_ns() + int(timeout_s * NS_PER_SECOND)
        while not call.wait(CHECK_S):
            if self._ends():
                raise ShippingEnded(f"{self.url}: {what} had not returned when shipping ended")
            if self._clock.monotonic_ns() > deadline_ns:
                self._overdue.append(call)
                raise TimeoutError(f"{what} has not returned within {timeout_s:.0f} s")
        result: T = call.result()
        return result

    def _sleep(self, seconds: float) -> None:
        deadline_ns = self._clock.monotonic_ns() + int(seconds * NS_PER_SECOND)
        while (left_ns := deadline_ns - self._clock.monotonic_ns()) > 0:
            if self._ends():
                raise ShippingEnded(f"{self.url} did not respond when shipping ended")
            self._never.wait(min(left_ns / NS_PER_SECOND, CHECK_S))

    def _wait_to_retry(self, seconds: float) -> None:
        self._sleep(seconds)
        self._counts.add(retries=1)

    def _failed(self, what: str, error: Exception) -> None:
        now_ns = self._clock.monotonic_ns()
        self._counts.failed(f"{what}: {error}", now_ns)
        if self._ends():
            raise ShippingEnded(f"{self.url}: {what}: {error}") from error
        is_due = self._logged_ns is None or now_ns - self._logged_ns >= LOG_INTERVAL_NS
        if self._retry.attempts is None and is_due:
            self._logged_ns, self._is_away = now_ns, True
            log.warning("%s: %s: %s; retrying until it succeeds", self.url, what, error)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        """Return the whole listing. It counts as one call."""
        return iter(self.with_retries(f"list {prefix}", 0, lambda: [*self.inner.list(prefix, recursive=recursive)]))

    def directories(self, prefix: str = "") -> Iterator[str]:
        return iter(self.with_retries(f"list {prefix}", 0, lambda: [*self.inner.directories(prefix)]))

    def size(self, name: str) -> int:
        return self.with_retries(f"size of {name}", 0, self.inner.size, name)

    def read(self, name: str, start: int, end: int) -> bytes:
        return self.with_retries(f"read {name}", end - start, self.inner.read, name, start, end)

    def read_version(self, name: str, start: int, end: int, version: str | None) -> tuple[bytes, str]:
        """Like ``Store.read_version``, once: an object that was replaced does not come back."""
        return self._call(
            f"read {name}", self._timeout_s + (end - start) / SLOWEST_BYTES_PER_S,
            self.inner.read_version, name, start, end, version,
        )  # fmt: skip

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Put an object unless it exists. Also return False if an attempt that appeared to fail was in fact applied."""
        return self.with_retries(f"put {name}", len(data), self.inner.put_if_absent, name, data)

    def put(self, name: str, data: bytes | Path) -> None:
        nbytes = len(data) if isinstance(data, bytes) else data.stat().st_size
        self.with_retries(f"put {name}", nbytes, self.inner.put, name, data)

    def delete(self, name: str) -> None:
        self.with_retries(f"delete {name}", 0, self.inner.delete, name)
