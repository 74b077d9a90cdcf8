"""Channels are checked before a command waits for a driver; channels that a driver accepts are not refused."""

from __future__ import annotations

import re

import pytest
from tests.support.channel_cases import ACCEPTED, SEPARATOR, recorded

from mainstem import cli
from mainstem.aeron.tools.channel_checks import check_publication, check_subscription
from mainstem.errors import ChannelUriError

# What drivers ignore and a client refuses: an unknown mode, a parameter without a value.
MISTAKE = re.compile(r"control-mode=(?!(manual|dynamic|response)\b)|(?<!alias)=(\||$)")


def accepted_channels() -> set[tuple[str, str]]:
    """Return the kind and channel of each command that the drivers accept, except likely mistakes."""
    commands = set()
    for line in recorded():
        for part in line.case.split(SEPARATOR) if line.c == line.here == ACCEPTED else ():
            kind, channel, *_ = [*part.split(" "), ""]
            if kind in ("pub", "xpub", "sub") and not MISTAKE.search(channel):
                commands.add((kind, channel.replace("{p}", "20121").replace("{q}", "20122")))
    return commands


def test_a_channel_that_a_driver_accepts_is_accepted() -> None:
    commands = accepted_channels()
    assert len(commands) > 300
    for kind, channel in sorted(commands):
        (check_subscription if kind == "sub" else check_publication)(channel.replace("{long}", "x" * 60))


@pytest.mark.parametrize(
    "channel",
    [
        "",
        "high water",
        "aeron:",
        "aeron:tcp?endpoint=localhost:1",
        "aeron:udp",
        "aeron:udp?",
        "aeron:udp?endpoint",
        "aeron:udp?endpoint=localhost",
        "aeron:udp?endpoint=localhost:99999",
        "aeron:udp?endpoint=localhost:x",
        "aeron:udp?endpoit=localhost:1",
        "aeron:udp?control-mode=dynamic",
        "aeron:udp?=localhost:1",
        "aeron-spy:aeron:ipc",
        "aeron:ipc?alias=" + "x" * 5000,
        "aeron:ipc?alias=\udcff|" + "\udcff" * 5000,
    ],
)
def test_a_channel_that_every_driver_refuses_is_refused_without_a_driver(
    channel: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for check in (check_publication, check_subscription):
        with pytest.raises(ChannelUriError):
            check(channel)
    monkeypatch.setenv("AERON_DIR", "/nowhere-at-all")
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", "60s")
    for command in (["sub", channel, "1"], ["pub", channel, "1"], ["record", channel, "-s", "1", "-o", "/proc/nope"]):
        if command[0] != "record" or channel.startswith("aeron"):
            with pytest.raises(SystemExit) as end:
                cli.main(command)
            assert end.value.code == cli.EXIT_ERROR
            assert "channel" in capsys.readouterr().err


@pytest.mark.parametrize("channel", ["aeron:ipc?mtu=x", "aeron:ipc?term-length=3", "aeron:ipc?eos=x"])
def test_a_parameter_of_publications_is_checked_for_publications_only(channel: str) -> None:
    check_subscription(channel)
    with pytest.raises(ChannelUriError):
        check_publication(channel)
