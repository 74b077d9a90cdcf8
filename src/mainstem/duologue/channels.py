"""The channels of a duologue server and of its clients (docs/protocols/duologue.md, 6.2)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from mainstem._internal.host_names import problem_of
from mainstem.duologue.settings import Settings
from mainstem.errors import ConfigurationError

PORT = 9000
HOST = "127.0.0.1"
PORTS_PER_DUOLOGUE = 2
FIRST_DUOLOGUE = 10  # the offset from the server's port to the duologues': 9000 and 9010 in the protocol document


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True)
class _Channels:
    host: str
    port: int = PORT
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        for name, port in (("port", self.port), ("control_port", self.control_port)):
            if not isinstance(port, int) or not 0 < port < 65536:
                raise ConfigurationError(f"{name}={port}: must be from 1 to 65535")

    @property
    def control_port(self) -> int:
        return self.port + 1 if self.settings.control_port is None else self.settings.control_port

    @property
    def name(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    def _publication(self, address: str, session_id: int | None) -> str:
        settings = self.settings
        channel = f"aeron:udp?{address}|mtu={settings.mtu}|term-length={settings.term_length}"
        return channel if session_id is None else f"{channel}|session-id={session_id}"


@dataclass(frozen=True)
class ServerChannels(_Channels):
    """A server's channels: the all-clients channels without a session id, or a duologue's channels with one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            ipaddress.ip_address(self.host)
        except ValueError:
            raise ConfigurationError(f"host={self.host!r}: must be an IP address of this machine") from None
        ports = range(self.base_port, self.base_port + PORTS_PER_DUOLOGUE * self.settings.max_clients)
        shown = f"the ports of {self.settings.max_clients} duologues, {ports.start} to {ports.stop - 1},"
        if ports.start < 1 or ports.stop > 65536:
            raise ConfigurationError(f"{shown} must be from 1 to 65535; set base_port or max_clients lower")
        for name, port in (("port", self.port), ("control_port", self.control_port)):
            if port in ports:
                raise ConfigurationError(f"{shown} include {name}={port}; set base_port")
        if self.port == self.control_port:
            raise ConfigurationError(f"port and control_port are both {self.port}; they must differ")

    @property
    def base_port(self) -> int:
        return self.port + FIRST_DUOLOGUE if self.settings.base_port is None else self.settings.base_port

    def subscription(self, port: int | None = None, session_id: int | None = None) -> str:
        """Return the channel for receiving from clients. A duologue's channel ignores all other sessions."""
        channel = f"aeron:udp?endpoint={_bracketed(self.host)}:{port or self.port}"
        return channel if session_id is None else f"{channel}|session-id={session_id}"

    def publication(self, control_port: int | None = None, session_id: int | None = None) -> str:
        control = f"{_bracketed(self.host)}:{control_port or self.control_port}"
        return self._publication(f"control={control}|control-mode=dynamic", session_id)


@dataclass(frozen=True)
class ClientChannels(_Channels):
    """A client's channels: the all-clients channels without a session id, or its duologue's channels with one."""

    local_address: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if problem := problem_of(self.host):
            raise ConfigurationError(f"host={self.host!r}: {problem}")

    def subscription(self, control_port: int | None = None, session_id: int | None = None) -> str:
        """Return the channel for receiving from the server. A duologue's channel ignores all other sessions."""
        local = self.local_address or ("::" if ":" in self.host else "0.0.0.0")
        control = f"{_bracketed(self.host)}:{control_port or self.control_port}"
        channel = f"aeron:udp?endpoint={_bracketed(local)}:0|control={control}|control-mode=dynamic"
        return channel if session_id is None else f"{channel}|session-id={session_id}"

    def publication(self, port: int | None = None, session_id: int | None = None) -> str:
        return self._publication(f"endpoint={_bracketed(self.host)}:{port or self.port}", session_id)
