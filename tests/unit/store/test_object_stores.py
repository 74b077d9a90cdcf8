"""How object store clients are configured: credentials, addresses, certificates and proxies."""

from __future__ import annotations

import io
import os
import signal
import socket
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest
from tests.support.fault_proxy import FaultProxy
from tests.support.object_stores import make_bucket, moto_application, s3_options, s3_server, serving

from mainstem.errors import ConfigurationError, StoreError
from mainstem.store import open_store
from mainstem.store.credentials import of_gcs, of_s3
from mainstem.store.http import HttpStore
from mainstem.store.objects import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
KEYS = ("access_key", "secret_key")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def put_and_read(s3: str, **options: str) -> None:
    given = {name: value for name, value in s3_options(s3).items() if name not in KEYS}
    store = open_store(f"s3://{make_bucket(s3)}/rec", given | options)
    store.put("a", b"0123")
    assert store.read("a", 1, 3) == b"12"
    assert [file.name for file in store.list()] == ["a"]


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_an_endpoint_in_the_environment_has_its_scheme_and_each_bucket(
    s3: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    given = s3_options(s3)
    monkeypatch.setenv(variable, f"http://{s3}/")
    keys = {name: given[name] for name in KEYS}
    bucket = make_bucket(s3)
    store = open_store(f"s3://{bucket}/rec", keys)
    store.put("a", b"0123")
    assert open_store(f"s3://{bucket}/rec", given).read("a", 0, 4) == b"0123"


def test_keys_as_options_are_not_mixed_with_a_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    provider = of_s3({"access_key": "a", "secret_key": "b"})
    assert provider is not None
    assert provider() == {"access_key_id": "a", "secret_access_key": "b", "token": None, "expires_at": None}
    assert of_s3({}) is None
    assert of_gcs({}) is None


def test_keys_of_the_environment_are_used(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    put_and_read(s3)


def test_a_profile_is_used(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("boto3")
    lines = ("[tides]", "aws_access_key_id = of-a-profile", "aws_secret_access_key = testing")
    (tmp_path / "credentials").write_text("\n".join(lines))
    monkeypatch.setenv("AWS_PROFILE", "tides")
    provider = of_s3({})
    assert provider is not None
    assert provider()["access_key_id"] == "of-a-profile"
    put_and_read(s3)
    monkeypatch.setenv("AWS_PROFILE", "none")
    with pytest.raises(ConfigurationError, match=r"s3://tides: .*profile \(none\) could not be found"):
        open_store("s3://tides")


def test_a_role_is_assumed_to_read_and_to_write(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://{s3}")
    role = "arn:aws:iam::123456789012:role/tides"
    keys = {"access_key": "testing", "secret_key": "testing"}
    put_and_read(s3, role_arn=role, session_name="tests", **keys)
    provider = of_s3(keys | {"role_arn": role, "region": "us-east-1"})
    assert provider is not None
    assert provider()["access_key_id"].startswith("ASIA")


def test_a_forked_process_does_not_hang(s3: str) -> None:
    store = open_store(f"s3://{make_bucket(s3)}/rec", s3_options(s3))
    store.put("a", b"1")
    pid = os.fork()
    if pid == 0:
        try:
            store.size("a")
        except StoreError as error:
            os._exit(0 if "spawn or forkserver" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.fixture
def pythons_sigint() -> Iterator[None]:
    """Install Python's own SIGINT handler. PySpark tests in this process may have installed one that asks its JVM first."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("pythons_sigint")
@pytest.mark.parametrize("action", ["size", "read", "list", "put"])
def test_a_signal_ends_the_wait_for_a_server(action: str) -> None:
    pytest.importorskip("obstore")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_store("s3://tides/rec", s3_options(f"127.0.0.1:{silent.getsockname()[1]}"))
        actions = {
            "size": lambda: store.size("a"),
            "read": lambda: store.read("a", 0, 1),
            "list": lambda: list(store.list()),
            "put": lambda: store.put("a", b"1"),
        }
        timer = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            actions[action]()
        assert time.monotonic() - started < REQUEST_TIMEOUT_S / 2
        timer.join()


def test_a_bucket_is_a_part_of_the_path_or_of_the_host() -> None:
    pytest.importorskip("obstore")
    given = s3_options("store.example:9000")
    by_path = open_store("s3://tides/rec", given)._client.config  # type: ignore[attr-defined]
    assert (by_path["endpoint"], by_path["virtual_hosted_style_request"]) == ("http://store.example:9000", "false")
    virtual = open_store("s3://tides/rec", given | {"force_virtual_addressing": "true"})._client.config  # type: ignore[attr-defined]
    assert virtual["endpoint"] == "http://tides.store.example:9000"


def test_an_authority_of_ones_own_is_trusted(tmp_path: Path) -> None:
    from mainstem.aqueduct import make_certificates

    files = make_certificates(tmp_path / "certs")
    with serving(moto_application(), (str(files.certificate), str(files.key))) as endpoint:
        options = s3_options(endpoint) | {"scheme": "https", "tls_ca_file_path": str(files.ca)}
        store = open_store("s3://tides/rec", options)
        create = urllib.request.Request(f"https://{endpoint}/tides", method="PUT")
        context = HttpStore(f"https://{endpoint}", {"ca": str(files.ca)})._authorities
        urllib.request.urlopen(create, context=context).close()
        store.put("a", b"1")
        assert store.read("a", 0, 1) == b"1"
    with pytest.raises(ConfigurationError, match="tls_ca_file_path: /nowhere: No such file"):
        open_store("s3://tides/rec", {"tls_ca_file_path": "/nowhere"})


def test_a_proxy_of_the_environment_is_for_reading_and_for_writing(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = make_bucket(s3)
    host, _, port = s3.partition(":")
    with FaultProxy((host, int(port))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        store = open_store(f"s3://{bucket}/rec", s3_options(s3))
        store.put("a", b"0123")
        assert store.put_if_absent("m", b"1")
        assert store.read("a", 1, 3) == b"12"
        assert store.size("a") == 4
        assert sorted(file.name for file in store.list()) == ["a", "m"]
        store.delete("a")
        methods = [line.split(b" ")[0] for line in proxy.requests]
        assert methods == [b"PUT", b"PUT", b"PUT", b"GET", b"HEAD", b"GET", b"POST"]
        assert all(f"http://{s3}/".encode() in line for line in proxy.requests)


def test_a_proxy_from_the_environment_applies_to_servers_on_other_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("moto.server")

    def application(environ: dict[str, object], start_response: object) -> io.BytesIO:
        start_response("206 PARTIAL", [("Content-Range", "bytes 0-3/4"), ("Content-Length", "4")])  # type: ignore[operator]
        return io.BytesIO(b"data")

    with serving(application) as endpoint:
        host, _, port = endpoint.partition(":")
        with FaultProxy((host, int(port))) as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
            assert HttpStore("http://recorder-1.example").read("0-0.rec", 0, 4) == b"data"
            assert proxy.requests == [b"GET http://recorder-1.example/0-0.rec HTTP/1.1"]
            assert HttpStore(f"http://{endpoint}").read("0-0.rec", 0, 4) == b"data"
            monkeypatch.setenv("NO_PROXY", "example")
            assert len(proxy.requests) == 1
