"""A store that is waited for: each call is repeated until it succeeds, and is given up only when shipping ends.

Who ships once says how often at most (``attempts``): a store that does not exist, or refuses, would be tried for ever.

A call runs in a thread of its own, because client libraries neither time out reliably nor return on a signal. One that is
overdue is left behind and counts as failed; while ``MAX_OVERDUE`` of them have not returned no further one starts. So a store that
is away for hours costs nothing but these threads. What comes late does no harm: objects have names of their own and are never
written with other bytes, and a manifest is put if absent.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from mainstem.clock import NS_PER_SECOND
from mainstem.errors import MainstemError, StoreError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainstem.clock import Clock
    from mainstem.recording.shipping.status import ShippingCounts
    from mainstem.store import Store, StoredFile

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 20.0
# A request without data; one with data has a second more for each 64 kB.
CALL_TIMEOUT_S = 60.0
SLOWEST_BYTES_PER_S = 64 << 10
MAX_OVERDUE = 8
# How often a waiting call checks whether shipping ends.
CHECK_S = 0.05
# An outage is one line in the log, and then one for so many seconds.
LOG_INTERVAL_NS = 60 * NS_PER_SECOND


class ShippingEnded(MainstemError):
    """Shipping ended while the store did not respond; what was not committed is shipped the next time."""


class Call:
    """A function on a thread of its own."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function, self._arguments = function, arguments
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        # A daemon: a request that never returns does not keep the process from ending.
        threading.Thread(target=self._run, name="mainstem-ship", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._function(*self._arguments)
        except BaseException as error:  # raised where the result is asked for
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float) -> bool:
        """Waits; whether the function has returned."""
        return self._done.wait(seconds)

    def result(self) -> Any:
        """What the function returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._result


class PatientStore:
    """A ``Store`` around another one. ``ends`` says that calls are to be given up; it is called often and by several threads.

    ``attempts`` is how often a call is made at most, beside the store's own retries; None for no limit.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        rng: random.Random,
        counts: ShippingCounts,
        ends: Callable[[], bool],
        timeout_s: float = CALL_TIMEOUT_S,
        first_pause_s: float = FIRST_PAUSE_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
        attempts: int | None = None,
    ) -> None:
        self._store, self._clock, self._rng, self._counts, self._ends = store, clock, rng, counts, ends
        self._timeout_s, self._first_pause_s, self._longest_pause_s = timeout_s, first_pause_s, longest_pause_s
        self._attempts = attempts
        self._pause = threading.Event()  # never set: waiting on it is a sleep
        self._overdue: list[Call] = []
        self._logged_ns: int | None = None
        self._is_away = False

    @property
    def inner(self) -> Store:
        """The store that is waited for."""
        return self._store

    @property
    def url(self) -> str:
        """As of the store."""
        return self._store.url

    def patiently(self, what: str, octets: int, function: Callable[..., T], *arguments: Any) -> T:
        """The result of ``function``, called until it raises nothing but FileNotFoundError; ``octets`` are those it moves.

        Raises StoreError when the last of ``attempts`` has failed.
        """
        pause_s, failed = self._first_pause_s, 0
        while True:
            try:
                result: T = self._once(what, self._timeout_s + octets / SLOWEST_BYTES_PER_S, function, *arguments)
            except FileNotFoundError:
                raise
            except (StoreError, OSError) as error:
                failed += 1
                self._failed(what, error)
                if failed == self._attempts:
                    raise StoreError(self.url, str(error).removeprefix(f"{self.url}: ")) from error
            else:
                self._counts.responded()
                if self._is_away:
                    self._is_away = False
                    log.warning("%s responds again", self.url)
                return result
            self._rest(pause_s * self._rng.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, self._longest_pause_s)
            self._counts.add(retries=1)

    def _once(self, what: str, timeout_s: float, function: Callable[..., T], *arguments: Any) -> T:
        while sum(not call.wait(0) for call in self._overdue) >= MAX_OVERDUE:
            self._rest(CHECK_S)
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

    def _rest(self, seconds: float) -> None:
        deadline_ns = self._clock.monotonic_ns() + int(seconds * NS_PER_SECOND)
        while (left_ns := deadline_ns - self._clock.monotonic_ns()) > 0:
            if self._ends():
                raise ShippingEnded(f"{self.url} did not respond when shipping ended")
            self._pause.wait(min(left_ns / NS_PER_SECOND, CHECK_S))

    def _failed(self, what: str, error: Exception) -> None:
        self._counts.failed(f"{what}: {error}", self._clock.monotonic_ns())
        if self._ends():
            raise ShippingEnded(f"{self.url}: {what}: {error}") from error
        now_ns = self._clock.monotonic_ns()
        if self._attempts is not None:
            return
        if self._logged_ns is None or now_ns - self._logged_ns >= LOG_INTERVAL_NS:
            self._logged_ns, self._is_away = now_ns, True
            log.warning("%s: %s: %s; it is tried again until it succeeds", self.url, what, error)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:
        """As ``Store.list``; the whole listing is one call."""
        return iter(self.patiently(f"list {prefix}", 0, lambda: [*self._store.list(prefix, recursive=recursive)]))

    def directories(self, prefix: str = "") -> Iterator[str]:
        """As ``Store.directories``."""
        return iter(self.patiently(f"list {prefix}", 0, lambda: [*self._store.directories(prefix)]))

    def size(self, name: str) -> int:
        """As ``Store.size``."""
        return self.patiently(f"size of {name}", 0, self._store.size, name)

    def read(self, name: str, start: int, end: int) -> bytes:
        """As ``Store.read``."""
        return self.patiently(f"read {name}", end - start, self._store.read, name, start, end)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """As ``Store.put_if_absent``; False also where an attempt that failed had been applied after all."""
        return self.patiently(f"put {name}", len(data), self._store.put_if_absent, name, data)

    def put(self, name: str, data: bytes | Path) -> None:
        """As ``Store.put``."""
        octets = len(data) if isinstance(data, bytes) else data.stat().st_size
        self.patiently(f"put {name}", octets, self._store.put, name, data)

    def delete(self, name: str) -> None:
        """As ``Store.delete``."""
        self.patiently(f"delete {name}", 0, self._store.delete, name)

    def local_path(self, name: str = "") -> Path | None:
        """As ``Store.local_path``."""
        return self._store.local_path(name)

    def close(self) -> None:
        """Closes the store."""
        self._store.close()
