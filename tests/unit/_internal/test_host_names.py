"""Text that cannot be a host name is refused in Mainstem's own words, which are the same on every version of Python."""

from __future__ import annotations

import socket
import ssl

import pytest

from mainstem import bymux, jmux
from mainstem._internal.host_names import look_up, problem_of
from mainstem.errors import ConfigurationError

IMPOSSIBLE = ("a..b", ".a", "a" * 64 + ".example", "ü" * 60, "\0", "a\0b", "\udcff", "\u202eab", "xn--ü")
REASON = "is not a host name: each part between dots must have 1 to 63 letters, digits or hyphens"


@pytest.mark.parametrize("host", IMPOSSIBLE)
def test_a_lookup_of_an_impossible_name_says_why(host: str) -> None:
    with pytest.raises(socket.gaierror) as error:
        look_up(host, 1, socket.SOCK_STREAM)
    assert error.value.strerror == f"{host!r} {REASON}"


@pytest.mark.parametrize(
    "host", ["localhost", "a.example.", "ü.example", "host_name", "127.0.0.1", "::1", "fe80::1%eth0"]
)
def test_a_possible_name_or_an_address_has_no_problem(host: str) -> None:
    assert problem_of(host) == ""


@pytest.mark.parametrize("family", [bymux, jmux], ids=lambda each: each.__name__)
def test_an_impossible_name_of_a_certificate_is_refused_before_connecting(family: object) -> None:
    connect = family.connect  # type: ignore[attr-defined]
    for address in ({"host": "127.0.0.1", "port": 1}, {"path": "/nowhere"}):
        with pytest.raises(ConfigurationError, match=f"server_hostname 'a..b' {REASON}"):
            connect(**address, ssl=ssl.create_default_context(), server_hostname="a..b")
