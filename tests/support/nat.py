"""Network namespaces client - router - server, with a router that masquerades by nftables; all are removed at the end."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import pytest
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from types import TracebackType

CLIENT, INSIDE = "10.77.1.2", "10.77.1.1"
SERVER, OUTSIDE = "198.51.100.2", "198.51.100.1"
RULES = """
table ip nat {
    chain postrouting {
        type nat hook postrouting priority srcnat;
        ip saddr 10.77.1.0/24 oifname "out" counter masquerade
    }
}
table ip watch {
    chain forward {
        type filter hook forward priority filter; policy accept;
        iifname "in" oifname "out" ip protocol udp counter comment "to the server"
        iifname "out" oifname "in" ip protocol udp ct state established,related counter accept comment "answers"
        iifname "out" oifname "in" counter drop comment "unasked"
    }
}
"""


def run(*command: str, check: bool = True, stdin: str | None = None) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=stdin, timeout=STALL_S)
    if check and done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Nat:
    """The three namespaces. Skips the test if the system refuses to create them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        prefix = f"ms{os.getpid() % 100_000}"
        self.client, self.router, self.server = f"{prefix}c", f"{prefix}r", f"{prefix}s"

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("nft"):
            pytest.skip("network namespaces need root, ip and nft")
        try:
            self._build()
        except OSError as error:
            self._stack.close()
            pytest.skip(f"network namespaces are refused: {error}")
        return self

    def _build(self) -> None:
        for name in (self.client, self.router, self.server):
            run("ip", "netns", "add", name)
            self._stack.callback(run, "ip", "netns", "delete", name, check=False)
            run("ip", "-n", name, "link", "set", "lo", "up")
        self._link(self.client, "eth0", CLIENT, self.router, "in", INSIDE)
        self._link(self.server, "eth0", SERVER, self.router, "out", OUTSIDE)
        run("ip", "-n", self.client, "route", "add", "default", "via", INSIDE)
        # The server has no route to the client's network, which is private, as behind any home router.
        run("ip", "netns", "exec", self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        run("ip", "netns", "exec", self.router, "nft", "-f", "-", stdin=RULES)

    def _link(self, one: str, one_name: str, one_ip: str, other: str, other_name: str, other_ip: str) -> None:
        run("ip", "-n", one, "link", "add", one_name, "type", "veth", "peer", "name", other_name, "netns", other)
        for name, device, address in ((one, one_name, one_ip), (other, other_name, other_ip)):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")

    def start(self, name: str, *command: str, env: dict[str, str]) -> subprocess.Popen[str]:
        """Start a process in a namespace."""
        return subprocess.Popen(
            ["ip", "netns", "exec", name, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )

    def counts(self) -> dict[str, int]:
        """Return how many datagrams the router saw, by its rules' comments, and how many connections it rewrote."""
        listing = run("ip", "netns", "exec", self.router, "nft", "list", "ruleset")
        found = {m[2]: int(m[1]) for m in re.finditer(r'counter packets (\d+) [^\n]*comment "([^"]+)"', listing)}
        rewritten = re.search(r"counter packets (\d+) bytes \d+ masquerade", listing)
        assert rewritten is not None, listing
        return {**found, "rewritten": int(rewritten[1])}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
