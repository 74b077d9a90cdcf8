"""Every error that Mainstem raises, in one tree. Each carries its facts as attributes; the message names the thing, the value
and the limit. Errors of a backend (a socket, a QUIC library, a file system) are mapped at the backend's door.
"""

from __future__ import annotations


class MainstemError(Exception):
    """The root of every error that Mainstem raises on purpose."""


class ConfigurationError(MainstemError, ValueError):
    """A setting or an argument that cannot be used: its name, its value, and what would be accepted."""


class ChannelUriError(ConfigurationError):
    """A channel URI that cannot be used.

    ``uri`` is the whole text, ``position`` the index in it where the fault was seen (-1 when it is not at one place).
    """

    def __init__(self, uri: str, reason: str, position: int = -1) -> None:
        self.uri = uri
        self.reason = reason
        self.position = position
        place = f" at character {position}" if position >= 0 else ""
        super().__init__(f"channel {uri!r}{place}: {reason}")


class ProtocolError(MainstemError):
    """A protocol rule was broken. ``rule`` names it."""

    def __init__(self, message: str, *, rule: str = "") -> None:
        self.rule = rule
        super().__init__(message)


class LocalProtocolError(ProtocolError):
    """You asked for what the protocol forbids; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The peer did what the protocol forbids. ``code`` is the wire's own error code where it has one."""

    def __init__(self, message: str, *, rule: str = "", code: int | None = None, peer: str = "") -> None:
        self.code = code
        self.peer = peer
        super().__init__(message, rule=rule)


class ClosedError(MainstemError):
    """The publication, subscription, stream or connection is closed."""


class TimedOut(MainstemError, TimeoutError):
    """Something did not happen in time. ``timeout`` is in seconds."""

    def __init__(self, message: str, *, timeout: float | None = None) -> None:
        self.timeout = timeout
        super().__init__(message)


class DriverTimeout(TimedOut):
    """The media driver is not there, or stopped keeping its heartbeat."""


class ClientTimeout(TimedOut):
    """The driver gave this client up, or the client was not run for longer than its liveness timeout."""


class OfferError(MainstemError):
    """A blocking send that did not succeed."""


class BackPressured(OfferError):
    """The window is full: somebody downstream is slower than this publisher."""


class NotConnected(OfferError):
    """No subscriber is connected."""


class AdminAction(OfferError):
    """The log rotated just now; the same call again will succeed."""


class MaxPositionExceeded(OfferError):
    """The stream has used up its positions (term length times 2**31); a new publication is needed."""


class RegistrationError(MainstemError):
    """The driver refused a command. ``code`` is Aeron's error code, ``correlation_id`` the command's."""

    def __init__(self, message: str, *, code: int, correlation_id: int = -1) -> None:
        self.code = code
        self.correlation_id = correlation_id
        super().__init__(message)


class ActiveDriverError(MainstemError):
    """Another driver is alive in that directory; it is never taken over."""


class StorageSpaceError(MainstemError):
    """The file system under the directory has too little room. ``needed`` and ``available`` are in bytes."""

    def __init__(self, message: str, *, needed: int, available: int) -> None:
        self.needed = needed
        self.available = available
        super().__init__(message)


class RecordingError(MainstemError):
    """A recording, its catalog or a segment cannot be read or written as asked."""


class CaptureError(MainstemError):
    """A capture file cannot be read as asked."""


class ChannelError(MainstemError):
    """A channel half can no longer be used; the subclass says why, and the reason is sticky."""


class NoReceivers(ChannelError):
    """Every receiver of the channel closed."""


class Cancelled(ChannelError):
    """The sender cancelled the channel."""


class ConnectionLost(ChannelError):
    """The connection under the channel ended."""


class LostInTransit(ChannelError):
    """The other half was lost on its way here."""


class InternalError(MainstemError):
    """A bug in Mainstem: please report it with its traceback."""
