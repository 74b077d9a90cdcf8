"""Wrong URLs are refused in Mainstem's own words, which are the same on every version of Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mainstem._internal.urls import split_url
from mainstem.archive.remote_archive import _host_and_port
from mainstem.codecs.schemas import SchemaRegistry
from mainstem.errors import ConfigurationError
from mainstem.recording.record_options import RecordOptions
from mainstem.store.open_store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

BRACKETS = "an IPv6 address must be in brackets, as in [::1]:4000"
PORT = "the port must be an integer from 0 to 65535"
WRONG = [
    ("[::1", BRACKETS),
    ("[x]", BRACKETS),
    ("[::1]x:80", BRACKETS),
    ("[v1.fe]", BRACKETS),
    ("::1:80", BRACKETS),
    ("tides:x", f"{PORT} (got 'x')"),
    ("tides:-1", f"{PORT} (got '-1')"),
    ("tides:1_0", f"{PORT} (got '1_0')"),
    ("tides:\u0663", f"{PORT} (got '\u0663')"),
    ("tides:65536", f"{PORT} (got '65536')"),
    ("a..b:80", "'a..b' is not a host name: each part between dots must have 1 to 63 letters, digits or hyphens"),
    ("a\u2100b", "the address contains characters that no host has"),
]


@pytest.mark.parametrize(("address", "why"), WRONG)
def test_a_wrong_address_is_refused_with_the_same_text_everywhere(address: str, why: str) -> None:
    places: dict[str, Callable[[str], Any]] = {
        f"'http://{address}'": open_store,
        f"'aeron-archive://{address}'": _host_and_port,
        f"channel 'bymux://{address}'": lambda url: RecordOptions(channel=url, out=Path()).server,
    }
    for name, call in places.items():
        with pytest.raises(ConfigurationError) as error:
            call(name.partition("'")[2].rstrip("'"))
        assert str(error.value) == f"{name}: {why}"
    with pytest.raises(ConfigurationError) as error:
        SchemaRegistry(f"http://{address}", "AVRO")
    assert str(error.value) == f"the option registry: {why}"


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://tides", "tides", None),
        ("http://user:pass:word@tides:80/a:b]?c=[d", "tides", 80),
        ("https://[fe80::1%25eth0]:443/", "fe80::1%25eth0", 443),
        ("http://tides:", "tides", None),
        ("s3://under_score/key", "under_score", None),
        ("relative/[path]", None, None),
    ],
)
def test_a_possible_url_is_split(url: str, host: str | None, port: int | None) -> None:
    parts = split_url(url)
    assert (parts.hostname, parts.port) == (host, port)


def test_a_message_has_no_password() -> None:
    with pytest.raises(ConfigurationError) as error:
        split_url("http://user:secret@tides:x/path")
    assert str(error.value) == f"'http://tides:x/path': {PORT} (got 'x')"


def test_the_name_of_a_bucket_need_not_be_that_of_a_host() -> None:
    assert split_url("gs://" + "a" * 64, names_host=False).netloc == "a" * 64
