"""Errors of Python's library have the same text on every version of Python."""

from __future__ import annotations

import io
import json
import ssl
from typing import TYPE_CHECKING

import pytest

from mainstem import bymux
from mainstem._internal.error_texts import json_problem, tls_problem
from mainstem.aeron.tools.message_text import read_json
from mainstem.codecs import find_codec
from mainstem.codecs.avro_schema import AvroSchema
from mainstem.codecs.schemas import SchemaRegistry
from mainstem.errors import ConfigurationError
from mainstem.store.open_store import open_store

if TYPE_CHECKING:
    from pathlib import Path


# The text of the error differs since Python 3.13.
TRAILING_COMMA = b'{"a": 1,}'


def test_what_is_not_json_is_said_without_pythons_words() -> None:
    with pytest.raises(json.JSONDecodeError) as error:
        json.loads('{\n"a" 1}')
    assert json_problem(error.value) == "line 2, character 5"
    with pytest.raises(ValueError, match=r"^the message is not JSON: character [89]$"):
        find_codec("json", {}).decode(TRAILING_COMMA)
    with pytest.raises(ConfigurationError, match=r"^line 1 is not JSON: character [89]$"):
        list(read_json(io.BytesIO(TRAILING_COMMA)))


def test_what_is_not_json_in_a_schema_is_said_without_pythons_words() -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(ConfigurationError, match=r"^Avro schema: it is not JSON: character [89]$"):
        AvroSchema(TRAILING_COMMA.decode())


def test_a_file_without_a_certificate_is_named_without_a_place_in_pythons_source(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("Főtanúsítvány\n")
    calls = {
        "the option registry_ca: ": lambda: SchemaRegistry("https://tides", "AVRO", ca=str(file)),
        f"ca: {file}: ": lambda: open_store("https://tides", {"ca": str(file)}),
        f"ca {file}: ": lambda: bymux.connect("127.0.0.1", 1, ca=file),
    }
    for beginning, call in calls.items():
        with pytest.raises(ConfigurationError) as error:
            call()
        text = str(error.value)
        assert text.startswith(beginning)
        assert "_ssl.c" not in text
        assert "certificate" in text


def test_the_reason_of_openssl_is_in_words() -> None:
    assert (
        tls_problem(ssl.SSLError(0, "no start line: no certificate (_ssl.c:1006)")) == "no start line: no certificate"
    )
    received = ssl.MemoryBIO()
    received.write(b"HTTP/1.1 400 Bad Request\r\n")
    client = ssl.create_default_context().wrap_bio(received, ssl.MemoryBIO(), server_hostname="tides")
    with pytest.raises(ssl.SSLError) as error:
        client.do_handshake()
    assert tls_problem(error.value) == error.value.reason.lower().replace("_", " ")
    assert " " in tls_problem(error.value)
