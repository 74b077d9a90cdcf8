"""Transient faults of an object store are retried; permanent ones raise one error that names the location."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.support.fault_proxy import FaultProxy
from tests.support.object_stores import gcs_options, make_bucket, s3_options, s3_server

from mainstem import open_recordings
from mainstem.errors import StoreError
from mainstem.store import Store, open_store
from mainstem.store import retry as retries
from mainstem.store.retry import Retry, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
DATA = bytes(range(256)) * 4000


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def proxy(s3: str) -> Iterator[FaultProxy]:
    host, _, port = s3.partition(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def _brief_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the number of attempts, but shorten obstore's waits."""
    monkeypatch.setattr(retries, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(retries, "MAX_WAIT_S", 0.01)


@pytest.fixture
def store(s3: str, proxy: FaultProxy) -> Store:
    opened = open_store(f"s3://{make_bucket(s3)}/rec", s3_options(proxy.url))
    opened._retry = Retry(sleep=lambda _: None)
    return opened


@pytest.mark.parametrize("fault", ["slow_down", "internal", "reset", "cut", "trickle"])
def test_a_read_outlives_faults(store: Store, proxy: FaultProxy, fault: str) -> None:
    store.put("a", DATA)
    proxy.only = b"GET "
    proxy.faults.extend([fault] * (1 if fault == "trickle" else 3))
    assert store.read("a", 100, 900_000) == DATA[100:900_000]
    assert not proxy.faults


@pytest.mark.parametrize("fault", ["slow_down", "internal", "reset", "lost", "cut"])
def test_sizes_lists_and_deletions_outlive_faults(store: Store, proxy: FaultProxy, fault: str) -> None:
    store.put("a", DATA)
    store.put("b/c", DATA)
    proxy.faults.extend([fault] * 2)
    assert store.size("a") == len(DATA)
    proxy.faults.extend([fault] * 2)
    assert sorted(file.name for file in store.list()) == ["a", "b/c"]
    proxy.faults.extend([fault] * 2)
    assert list(store.directories()) == ["b"]
    proxy.faults.extend([fault] * 2)
    store.delete("a")
    assert not proxy.faults
    assert [file.name for file in store.list()] == ["b/c"]


@pytest.mark.parametrize("fault", ["slow_down", "internal", "conflict", "reset", "lost"])
def test_a_conditional_write_outlives_faults(store: Store, proxy: FaultProxy, fault: str) -> None:
    proxy.only = b"PUT "
    proxy.faults.extend([fault] * 2)
    assert store.put_if_absent("a", b"mine")
    assert not proxy.faults
    assert store.read("a", 0, 10) == b"mine"
    proxy.faults.extend([fault] * 2)
    assert not store.put_if_absent("a", b"other")
    assert store.read("a", 0, 10) == b"mine"


@pytest.mark.parametrize("fault", ["slow_down", "internal", "reset", "lost"])
def test_a_write_in_parts_outlives_faults(store: Store, proxy: FaultProxy, fault: str) -> None:
    data = DATA * 12
    proxy.only = b"PUT "
    proxy.faults.extend(["pass", fault])
    store.put("big", data)
    assert not proxy.faults
    assert store.read("big", 0, len(data)) == data


def test_a_fault_that_stays_is_an_error_that_names_the_place(store: Store, proxy: FaultProxy) -> None:
    store.put("a", DATA)
    proxy.only = b"GET "
    proxy.faults.extend(["slow_down"] * 100)
    with pytest.raises(StoreError, match=r"(?s)s3://.*/rec: cannot read a: .*503"):
        store.read("a", 0, 10)
    # One more request may ask for the size, because a range past the end is not a fault.
    assert len(proxy.faults) in (100 - retries.MAX_ATTEMPTS, 100 - retries.MAX_ATTEMPTS - 1)
    proxy.faults.extend(["slow_down"] * 100)
    with pytest.raises(StoreError, match=r"(?s)s3://.*/rec: cannot list it failed 8 times: .*503"):
        list(store.list())


def test_a_missing_bucket_is_reported(proxy: FaultProxy) -> None:
    missing = "s3://no-such-bucket-at-all/rec"
    proxy.requests.clear()
    with pytest.raises(StoreError, match=r"no-such-bucket-at-all.*there is no such bucket"):
        list(open_store(missing, s3_options(proxy.url)).list())
    assert len(proxy.requests) == 1
    with (
        pytest.raises(StoreError, match="there is no such bucket"),
        open_recordings(missing, s3_options(proxy.url)) as recordings,
    ):
        recordings.scan().to_arrow()


def test_rejected_requests_are_not_retried(store: Store, proxy: FaultProxy) -> None:
    missing = open_store("s3://no-such-bucket-at-all/rec", s3_options(proxy.url))
    proxy.requests.clear()
    with pytest.raises(StoreError, match="no-such-bucket-at-all"):
        missing.put("a", b"1")
    assert len(proxy.requests) == 1


def test_a_refusal_of_a_write_is_not_tried_again(store: Store, proxy: FaultProxy) -> None:
    proxy.only = b"PUT "
    proxy.faults.extend(["refuse"] * 8)
    with pytest.raises(StoreError, match=r"cannot write a: "):
        store.put("a", b"1")
    with pytest.raises(StoreError, match=r"cannot write b: "):
        store.put_if_absent("b", b"1")
    assert len(proxy.faults) == 6


def test_a_writer_without_credentials_requests_none(proxy: FaultProxy) -> None:
    store = open_store("gs://bucket/rec", gcs_options(proxy.url))
    proxy.faults.append("refuse")
    with pytest.raises(StoreError, match="403"):
        store.put("a", b"1")
    assert [line.partition(b" ")[0] for line in proxy.requests] == [b"PUT"]


def test_waits_grow_are_bounded_and_have_jitter() -> None:
    first, longest = Retry().first_wait_s, Retry().max_wait_s
    waits: list[float] = []

    def fail() -> None:
        raise TransientError("busy")

    with pytest.raises(StoreError, match="tides: cannot list failed 8 times: busy"):
        Retry(sleep=waits.append, rng=random.Random(1)).call(fail, "tides", "cannot list")
    assert len(waits) == 7
    for number, wait in enumerate(waits):
        full = min(first * 2**number, longest)
        assert full / 2 <= wait <= full
    assert len({wait / 2**number for number, wait in enumerate(waits)}) == 7


def test_a_servers_retry_delay_is_respected_up_to_the_limit() -> None:
    waits: list[float] = []

    def fail() -> None:
        raise TransientError("busy", wait_s=2.0 if not waits else 1000.0)

    with pytest.raises(StoreError):
        Retry(attempts=3, sleep=waits.append).call(fail, "tides", "cannot list")
    assert waits == [2.0, 5.0]


def test_retryable_errors_are_recognized_by_type() -> None:
    for error in (TransientError("busy"), ConnectionResetError("reset"), TimeoutError("late")):
        errors = [error]
        assert Retry(sleep=lambda _: None).call(lambda errors=errors: raised(errors), "tides", "cannot list") == "done"
    for error in (FileNotFoundError("timed out"), PermissionError("denied"), ValueError("the key has 503 bytes")):
        with pytest.raises(type(error)):
            Retry(sleep=lambda _: None).call(lambda error=error: raised([error]), "tides", "cannot list")


def raised(errors: list[Exception]) -> str:
    """Raise the errors in turn, then return."""
    if errors:
        raise errors.pop()
    return "done"
