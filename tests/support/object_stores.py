"""Object stores on this machine that others wrote, where they are installed: moto, s3rver, Azurite, gcp-storage-emulator."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.support.patience import STALL_S

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"access_key": "testing", "secret_key": "testing", "region": "us-east-1", "scheme": "http"}
S3RVER_KEYS = KEYS | {"access_key": "S3RVER", "secret_key": "S3RVER"}
# The account that every Azurite has; its key is public, and a part of Azurite's documentation.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_S = STALL_S


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


@contextmanager
def s3_server() -> Iterator[str]:
    """An S3 server in this process; its host and port. Skips the test where moto is not installed."""
    pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    application, one_request = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def in_turn(environ: Any, start_response: Any) -> Any:
        # moto checks the condition of a put and then puts, in two steps, which S3 does in one.
        with one_request:
            return application(environ, start_response)

    with make_server("127.0.0.1", 0, in_turn, threaded=True, request_handler=MotoRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def program(variable: str, name: str) -> str:
    """The path of a program: an environment variable's value, or what ``PATH`` has. Skips the test where there is none."""
    path = os.environ.get(variable) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: set {variable} to its path ")
    return path


@contextmanager
def listening(command: list[str], pattern: str) -> Iterator[str]:
    """A server that is a process; the host and port that ``pattern`` takes from what it writes."""
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
    """Microsoft's emulator of Azure's blobs; its host and port."""
    pytest.importorskip("obstore")
    command = [program("MAINSTEM_AZURITE", "azurite-blob"), "--blobPort", "0", "--inMemoryPersistence", "--silent"]
    command += ["--loose", "--skipApiVersionCheck", "--disableTelemetry"]
    with listening(command, r"listens on http://(\S+)") as endpoint:
        yield endpoint


@contextmanager
def s3rver_server() -> Iterator[str]:
    """An S3 server of another author than moto's; its host and port."""
    pytest.importorskip("obstore")
    with tempfile.TemporaryDirectory(prefix="mainstem-s3rver-") as folder:
        command = [program("MAINSTEM_S3RVER", "s3rver"), "-d", folder, "-a", "127.0.0.1", "-p", "0", "-s"]
        with listening(command, r"listening on (\S+)") as endpoint:
            yield endpoint


@contextmanager
def gcs_server() -> Iterator[str]:
    """An emulator of Google Cloud Storage, which knows no conditions; its host and port."""
    pytest.importorskip("obstore")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program("MAINSTEM_GCS_EMULATOR", "gcp-storage-emulator"), "start", "--in-memory"]
    with listening([*command, "--host", "127.0.0.1", "--port", str(port)], r"(All services started)"):
        yield f"127.0.0.1:{port}"


def make_bucket(endpoint: str, keys: dict[str, str] = KEYS) -> str:
    """A new bucket's name."""
    from pyarrow import fs

    name = f"bucket-{uuid4().hex[:12]}"
    fs.S3FileSystem(**keys, endpoint_override=endpoint, allow_bucket_creation=True).create_dir(name)
    return name


def make_container(endpoint: str) -> str:
    """A new container's name."""
    from pyarrow import fs

    name = f"container-{uuid4().hex[:12]}"
    fs.AzureFileSystem(**azurite_options(endpoint)).create_dir(name)
    return name


def make_gcs_bucket(endpoint: str) -> str:
    """A new bucket's name."""
    name = f"bucket-{uuid4().hex[:12]}"
    body = json.dumps({"name": name}).encode()
    request = urllib.request.Request(f"http://{endpoint}/storage/v1/b?project=tests", body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=START_S):
        return name
