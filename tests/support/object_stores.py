"""Object stores on this machine: moto's S3, where it is installed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"access_key": "testing", "secret_key": "testing", "region": "us-east-1", "scheme": "http"}


def s3_options(endpoint: str) -> dict[str, str]:
    return KEYS | {"endpoint_override": endpoint}


@contextmanager
def s3_server() -> Iterator[str]:
    """An S3 server in this process; its host and port. Skips the test where moto is not installed."""
    pytest.importorskip("moto.server")
    pytest.importorskip("obstore")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"{host}:{port}"
    finally:
        server.stop()


def make_bucket(endpoint: str) -> str:
    """A new bucket's name."""
    from pyarrow import fs

    name = f"bucket-{uuid4().hex[:12]}"
    options = s3_options(endpoint)
    fs.S3FileSystem(**options, allow_bucket_creation=True).create_dir(name)
    return name
