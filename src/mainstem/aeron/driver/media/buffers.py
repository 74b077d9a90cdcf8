"""How large the system lets a socket's buffers be, and whether the settings fit (behaviour, 24: what start-up refuses)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem.aeron.driver.settings import DriverSettings


class BufferLimits(NamedTuple):
    """Lengths in bytes, as the system reports them: what a socket has that asks for nothing, and the most it may ask for."""

    default_send: int
    max_send: int
    default_receive: int
    max_receive: int


def check_buffers(settings: DriverSettings, limits: BufferLimits) -> None:
    """Raises ConfigurationError when a datagram, or the window, is larger than the buffer that a socket will have."""
    send = min(settings.socket_so_sndbuf, limits.max_send) or limits.default_send
    receive = min(settings.socket_so_rcvbuf, limits.max_receive) or limits.default_receive
    if settings.mtu_length > send:
        raise ConfigurationError(
            f"AERON_MTU_LENGTH {settings.mtu_length} exceeds the {send} bytes that the system gives a socket to send "
            "(SO_SNDBUF, net.core.wmem_max)"
        )
    if settings.rcv_initial_window_length > receive:
        raise ConfigurationError(
            f"AERON_RCV_INITIAL_WINDOW_LENGTH {settings.rcv_initial_window_length} exceeds the {receive} bytes that the "
            "system gives a socket to receive (SO_RCVBUF, net.core.rmem_max)"
        )
