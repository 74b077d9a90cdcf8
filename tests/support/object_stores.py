"""Third-party object stores on this machine, if they are installed: moto, s3rver and Azurite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from tests.support.plain_server import POLL_S
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"access_key": "testing", "secret_key": "testing", "region": "us-east-1", "scheme": "http"}
S3RVER_KEYS = KEYS | {"access_key": "S3RVER", "secret_key": "S3RVER"}
# The account that every Azurite has; its key is public, in Azurite's documentation.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_S = STALL_S
# moto does not check signatures.
SIGNED = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


def s3_options(endpoint: str) -> dict[str, str]:
    return KEYS | {"endpoint_override": endpoint}


def azurite_options(endpoint: str) -> dict[str, str]:
    return {
        "account_name": AZURITE_ACCOUNT,
        "account_key": AZURITE_KEY,
        "blob_storage_authority": endpoint,
        "blob_storage_scheme": "http",
        "dfs_storage_authority": endpoint,
        "dfs_storage_scheme": "http",
    }


def gcs_options(endpoint: str) -> dict[str, str]:
    return {"endpoint_override": endpoint, "scheme": "http", "anonymous": "true", "project_id": "tests"}


def moto_application() -> Any:
    """Return moto as a WSGI application. Skip the test if it is not installed."""
    pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    application, one_request = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def in_turn(environ: Any, start_response: Any) -> Any:
        # moto checks a put's condition and then stores the object, in two steps; S3 does both atomically.
        with one_request:
            return application(environ, start_response)

    return in_turn


@contextmanager
def serving(application: Any, tls: tuple[str, str] | None = None) -> Iterator[str]:
    """Yield the host and port of a server in this process; ``tls`` has the paths of its certificate and key."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    options = {"threaded": True, "request_handler": MotoRequestHandler, "ssl_context": tls}
    with make_server("127.0.0.1", 0, application, **options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the host and port of an S3 server in this process."""
    with serving(moto_application()) as endpoint:
        yield endpoint


@contextmanager
def gcs_server() -> Iterator[str]:
    """Yield the host and port of Google Cloud Storage's XML API, which differs from S3 in the condition of a put."""
    moto = moto_application()

    def as_s3(environ: Any, start_response: Any) -> Any:
        environ["HTTP_AUTHORIZATION"] = SIGNED
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", "") == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        # Google also accepts percent-encoded slashes in names.
        environ["RAW_URI"] = environ["REQUEST_URI"] = quote(environ["PATH_INFO"].encode("latin-1"))
        return moto(environ, start_response)

    with serving(as_s3) as endpoint:
        yield endpoint


def program(variable: str, name: str) -> str:
    """Return a program's path: the environment variable's value, or the program on ``PATH``. Skip the test if neither exists."""
    path = os.environ.get(variable) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: set {variable} to its path ")
    return path


@contextmanager
def listening(command: list[str], pattern: str) -> Iterator[str]:
    """Run a server as a process; yield the host and port that ``pattern`` matches in its output."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with (
        tempfile.TemporaryFile("w+b") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            deadline = time.monotonic() + START_S
            while True:
                log.seek(0)
                text = log.read().decode(errors="replace")
                if match := re.search(pattern, text):
                    break
                assert process.poll() is None, f"{command[0]} has ended: {text}"
                assert time.monotonic() < deadline, f"{command[0]} does not start: {text}"
                time.sleep(0.02)
            yield match[1]
        finally:
            process.kill()


@contextmanager
def azurite_server() -> Iterator[str]:
    """Yield the host and port of Azurite, Microsoft's emulator of Azure Blob Storage."""
    pytest.importorskip("obstore")
    command = [program("MAINSTEM_AZURITE", "azurite-blob"), "--blobPort", "0", "--inMemoryPersistence", "--silent"]
    command += ["--loose", "--skipApiVersionCheck", "--disableTelemetry"]
    with listening(command, r"listens on http://(\S+)") as endpoint:
        yield endpoint


@contextmanager
def s3rver_server() -> Iterator[str]:
    """Yield the host and port of s3rver, an S3 server independent of moto."""
    pytest.importorskip("obstore")
    with tempfile.TemporaryDirectory(prefix="mainstem-s3rver-") as directory:
        command = [program("MAINSTEM_S3RVER", "s3rver"), "-d", directory, "-a", "127.0.0.1", "-p", "0", "-s"]
        with listening(command, r"listening on (\S+)") as endpoint:
            yield endpoint


def make_bucket(endpoint: str, keys: dict[str, str] = KEYS) -> str:
    """Create a bucket and return its name."""
    import boto3

    name = f"bucket-{uuid4().hex[:12]}"
    client = boto3.Session().client(
        "s3",
        endpoint_url=f"http://{endpoint}",
        aws_access_key_id=keys["access_key"],
        aws_secret_access_key=keys["secret_key"],
        region_name=keys["region"],
    )
    client.create_bucket(Bucket=name)
    client.close()
    return name


def make_container(endpoint: str) -> str:
    """Create a container and return its name."""
    from pyarrow import fs

    name = f"container-{uuid4().hex[:12]}"
    fs.AzureFileSystem(**azurite_options(endpoint)).create_dir(name)
    return name
