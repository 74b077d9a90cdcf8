"""Two hosts joined by a cable, simulated with network namespaces: multicast and multiple destinations between them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.case_selection import long_after
from tests.support.waiting import STALL_S

import mainstem

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.system
PROGRAM = Path(__file__).parent / "programs" / "one_way_stream.py"
MESSAGES = 500


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Create two namespaces, with 10.99.0.1 in one and 10.99.0.2 in the other; skip the test if that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("there is no ip command")
    tag = uuid.uuid4().hex[:6]
    names = (f"ms{tag}a", f"ms{tag}b")
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ip("link", "add", f"v{tag}a", "netns", names[0], "type", "veth", "peer", f"v{tag}b", "netns", names[1])
            for number, (name, end) in enumerate(zip(names, "ab", strict=True), start=1):
                ip("-n", name, "address", "add", f"10.99.0.{number}/24", "dev", f"v{tag}{end}")
                ip("-n", name, "link", "set", f"v{tag}{end}", "up")
                ip("-n", name, "link", "set", "lo", "up")
                ip("-n", name, "route", "add", "224.0.0.0/4", "dev", f"v{tag}{end}")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are refused: {error.stderr.decode().strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def run(namespace: str, role: str, *channels: str) -> subprocess.Popen[str]:
    source = str(Path(mainstem.__file__).parent.parent)
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, sys.executable, str(PROGRAM), role, str(MESSAGES), *channels],
        env={**os.environ, "PYTHONPATH": source},
        stdout=subprocess.PIPE,
        text=True,
    )


MULTICAST = "aeron:udp?endpoint=224.20.30.39:24567|interface=10.99.0.{}/24"
CASES = {
    "multicast": (MULTICAST.format(1) + "|ttl=2", MULTICAST.format(2) + "|ttl=2"),
    "dynamic": (
        "aeron:udp?control=10.99.0.1:24566|control-mode=dynamic",
        "aeron:udp?endpoint=10.99.0.2:24567|control=10.99.0.1:24566|control-mode=dynamic",
    ),
    "manual": (
        "aeron:udp?control=10.99.0.1:24566|control-mode=manual",
        "aeron:udp?endpoint=10.99.0.2:24567",
        "aeron:udp?endpoint=10.99.0.2:24567",
    ),
}


@pytest.mark.parametrize("mode", long_after(1, CASES))
def test_carries_a_stream_from_one_namespace_to_another(namespaces: tuple[str, str], mode: str) -> None:
    send, receive, *destinations = CASES[mode]
    receiver = run(namespaces[1], "receive", receive)
    sender = run(namespaces[0], "send", send, *destinations)
    try:
        assert receiver.communicate(timeout=STALL_S)[0] == f"{MESSAGES} messages\n"
        assert sender.communicate(timeout=STALL_S)[0] == "sent\n"
    finally:
        for process in (receiver, sender):
            process.kill()
            process.communicate()


FIND = """
import sys
from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.driver.media.transport import SystemTransports
from mainstem.aeron.driver.media.udp_channel import UdpChannel
for interface in sys.argv[1:]:
    uri = ChannelUri.parse(f"aeron:udp?endpoint=224.20.30.39:24567|interface={interface}")
    try:
        found = UdpChannel.parse(uri, resolver=SystemTransports())
        print(found.local_data.ip, found.interface_index > 0)
    except ValueError as error:
        print(error.reason)
"""


def test_every_address_of_an_interface_that_is_up_can_be_chosen(namespaces: tuple[str, str]) -> None:
    name = namespaces[0]
    ip("-n", name, "address", "add", "10.9.9.9/24", "dev", "lo")
    ip("-n", name, "address", "add", "10.9.9.10/24", "dev", "lo", "label", "lo:second")
    ip("-n", name, "link", "add", "down0", "type", "veth", "peer", "down1")
    ip("-n", name, "address", "add", "10.8.8.8/24", "dev", "down0")
    asked = ["10.9.9.9", "10.9.9.10/32", "{lo:second}", "10.99.0.0/16", "{lo}", "10.8.8.8"]
    done = subprocess.run(
        ["ip", "netns", "exec", name, sys.executable, "-c", FIND, *asked],
        env={**os.environ, "PYTHONPATH": str(Path(mainstem.__file__).parent.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "10.9.9.9 True",
        "10.9.9.10 True",
        "10.9.9.10 True",
        "10.99.0.1 True",
        "127.0.0.1 True",
        "no network interface has an address in 10.8.8.8/32",
    ]
