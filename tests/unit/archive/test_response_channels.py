"""Clients that have proved nothing decide where an archive's responses go, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.aeron.channel import ChannelUri
from mainstem.archive.channels import name_in, response_channel
from mainstem.archive.server.control_session import MAX_AMPLIFICATION, SETUP_INTERVAL_NS, SETUP_LENGTH, patience_ns
from mainstem.archive.server.settings import ArchiveSettings
from mainstem.errors import ChannelUriError

SMALL = "term-length=65536|sparse=true"
IMAGE_ID = 77


def channel(text: str, **overrides: Any) -> str:
    settings = ArchiveSettings(control_channel="aeron:udp?endpoint=archive.example:8010", **overrides)
    return response_channel(
        ChannelUri.parse(text),
        IMAGE_ID,
        term_length=settings.control_term_buffer_length,
        is_sparse=settings.control_term_buffer_sparse,
        mtu=settings.control_mtu_length,
    )


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("aeron:ipc", f"aeron:ipc?{SMALL}"),
        # As Java's client asks with its defaults.
        (
            "aeron:udp?term-length=65536|mtu=1408|sparse=true|endpoint=localhost:8020|session-id=7",
            "aeron:udp?endpoint=localhost:8020|mtu=1408|term-length=65536|session-id=7|sparse=true",
        ),
        ("aeron:ipc?term-length=128m|sparse=false", f"aeron:ipc?{SMALL}"),
        ("aeron:ipc?mtu=1024", f"aeron:ipc?mtu=1024|{SMALL}"),
        ("aeron:ipc?mtu=65504", f"aeron:ipc?{SMALL}"),
        # Sockets, buffers, flow control and streams of others are not the client's to choose.
        (
            "aeron:udp?endpoint=[::1]:5|control=10.0.0.1:53|control-mode=dynamic|so-sndbuf=1g|so-rcvbuf=1g|rcv-wnd=1g|cc=cubic",
            f"aeron:udp?endpoint=[::1]:5|{SMALL}",
        ),
        (
            "aeron:udp?endpoint=[::1]:5|fc=min,g:/9|interface=slow.example|tags=1,2|term-id=5|term-offset=64|linger=1h|group=true",
            f"aeron:udp?endpoint=[::1]:5|{SMALL}",
        ),
        ("aeron:udp?endpoint=127.0.0.1:5|session-id=tag:9", f"aeron:udp?endpoint=127.0.0.1:5|{SMALL}"),
    ],
)
def test_the_settings_decide_what_a_response_publication_costs(asked: str, given: str) -> None:
    assert channel(asked) == given


def test_a_client_can_ask_for_less_than_the_settings_allow_and_not_for_more() -> None:
    generous: dict[str, Any] = {"control_term_buffer_length": 1 << 20, "control_mtu_length": 8192}
    assert channel("aeron:ipc", **generous) == "aeron:ipc?mtu=8192|term-length=1048576|sparse=true"
    assert channel("aeron:ipc?term-length=64k|mtu=1408", **generous) == f"aeron:ipc?mtu=1408|{SMALL}"
    assert "term-length=1048576" in channel("aeron:ipc?term-length=1g", **generous)
    assert "sparse=false" in channel("aeron:ipc?sparse=true", control_term_buffer_sparse=False)


def test_only_a_response_channel_says_where_the_archive_sends_from() -> None:
    given = channel("aeron:udp?control-mode=response|control=archive.example:9|so-rcvbuf=1g")
    assert (
        given == f"aeron:udp?control=archive.example:9|control-mode=response|{SMALL}|response-correlation-id={IMAGE_ID}"
    )


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("localhost:1", ""),
        ("127.0.0.1:1", ""),
        ("[::1]:1", ""),
        ("[fe80::1%eth0]:1", ""),
        ("a.example:1", "a.example"),
        ("", ""),
    ],
)
def test_names_are_told_from_addresses(address: str, name: str) -> None:
    assert name_in(address) == name


@pytest.mark.parametrize("parameter", ["term-length=x", "mtu=x"])
def test_a_malformed_parameter_is_refused(parameter: str) -> None:
    with pytest.raises(ChannelUriError):
        channel(f"aeron:udp?endpoint=127.0.0.1:5|{parameter}")


@pytest.mark.parametrize("length", range(32, 2048, 32))
def test_a_request_pays_for_the_setups_that_it_causes(length: int) -> None:
    # The driver sends one at once, one per interval, and perhaps one more while the archive closes the publication.
    setups = 1 + patience_ns(length) // SETUP_INTERVAL_NS + 1
    assert length < 80 or setups * SETUP_LENGTH <= MAX_AMPLIFICATION * length
