"""Files below an http(s) URL: those of ``mainstem serve``, or of any server with range requests. Read-only.

Requests go over connections that are kept, one for each thread that reads at a time. ``mainstem serve`` marks its responses; only
it has lists, and entity tags that name the recording, so that a reader notices when a directory was made anew under the same URL
(``read_of``). Of any other server files are read by their names.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import struct
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlsplit

from mainstem._internal.blocking_eyeballs import connect_socket
from mainstem.errors import ConfigurationError, StoreError
from mainstem.store.base import StoredFile
from mainstem.store.options import HTTP
from mainstem.store.retry import Retry, TransientError
from mainstem.store.serve_token import TOKEN_VARIABLE, hint, token_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

OPTIONS = tuple(HTTP)
# Connections that are kept without a request; more are closed when their request ends.
MAX_IDLE_CONNECTIONS = 16
CONNECT_SECONDS = 10.0
DEFAULT_TIMEOUT_S = 60.0
# Of a body whose length is not known before: a page of a list.
MAX_PAGE_LENGTH = 64 << 20
# Whole files that are asked for again only when they have changed: catalogs.
MAX_REMEMBERED_FILES = 16
# A body of fewer bytes is read by the response itself.
DIRECT_BYTES = 64 << 10
# What a thread that receives is woken for: less costs switches, more than half of the window stops the sender.
WAKE_BYTES = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_UNSATISFIED = re.compile(r"bytes \*/(\d+)")
_SEGMENT_SAFE = "-._~/"


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    headers: http.client.HTTPMessage
    body: bytes | memoryview

    def sentence(self) -> str:
        """The server's own sentence, where its body has one."""
        try:
            value = json.loads(bytes(self.body))
        except (ValueError, RecursionError):
            return ""
        return str(value.get("error", "")) if isinstance(value, dict) else ""


class _Connection(http.client.HTTPConnection):
    """A connection to the first address of the host that accepts, with or without TLS."""

    def __init__(self, host: str, port: int | None, tls: ssl.SSLContext | None) -> None:
        self.default_port = http.client.HTTP_PORT if tls is None else http.client.HTTPS_PORT
        super().__init__(host, port, timeout=CONNECT_SECONDS)
        self._tls = tls

    def connect(self) -> None:
        """Connects, and completes the handshake of TLS."""
        sock = connect_socket(self.host, self.port, CONNECT_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=self.host)


class HttpStore:
    """Files below an http(s) URL.

    Args:
        url: The URL, without a user and a query.
        options: ``token`` or ``token_file`` (default: the environment variable MAINSTEM_SERVE_TOKEN, where
            MAINSTEM_SERVE_TOKEN_HOST names this host), sent as a bearer token;
            ``ca``, a file with the authorities to trust; ``timeout`` in seconds, for each request; ``insecure=true`` sends a token
            without TLS to another machine.
        retry: How what fails for a moment is tried again.

    Raises:
        ConfigurationError: The URL or an option is not usable.

    Example:
        ``HttpStore("https://recorder-1:8480", {"token_file": "/run/secrets/token", "ca": "ca.pem"})``
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None, *, retry: Retry | None = None) -> None:
        texts = {name.lower().replace("-", "_"): value for name, value in (options or {}).items()}
        if unknown := sorted(set(texts) - set(OPTIONS)):
            raise ConfigurationError(f"{unknown[0]!r} is no option of http(s)://; there are {', '.join(OPTIONS)}")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ConfigurationError(f"{url!r}: {error}") from None
        if parts.username is not None or parts.password is not None:
            raise ConfigurationError(
                "a URL with a user or a password ends up in logs and plans: give the token by the option token_file or token,"
                f" or in {TOKEN_VARIABLE}"
            )
        if parts.query or parts.fragment:
            raise ConfigurationError(f"{url!r}: a URL of recordings has no query and no fragment")
        self._host, self._port = host, port
        if parts.scheme.lower() not in ("http", "https") or not self._host:
            raise ConfigurationError(f"{url!r} is no http(s) URL with a host")
        self.url = url.rstrip("/")
        self._path = quote(parts.path.rstrip("/"), safe="%" + _SEGMENT_SAFE)
        self._timeout_s = _seconds(texts.get("timeout"))
        self._tls = _tls(texts.get("ca")) if parts.scheme.lower() == "https" else None
        self._headers = {"User-Agent": "mainstem", "Accept-Encoding": "identity"}
        self._token_port = port or (http.client.HTTP_PORT if self._tls is None else http.client.HTTPS_PORT)
        if token := token_for(texts, self._host, self._token_port):
            if self._tls is None and texts.get("insecure", "").lower() != "true" and not _is_this_machine(self._host):
                raise ConfigurationError(
                    f"{self.url}: the token would cross the network unencrypted: use https://, or the option insecure=true"
                )
            self._headers["Authorization"] = f"Bearer {token}"
        self._retry = retry or Retry()
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._pid = os.getpid()
        self._remembered: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._is_served: bool | None = None

    # -- connections -------------------------------------------------------------------------------------------------

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        """A connection, and whether it has had a request before."""
        with self._lock:
            if self._pid != os.getpid():
                # Those of the parent process belong to it. They are closed here without a word to the server: a TLS
                # connection would say that it ends.
                for connection in self._idle:
                    if connection.sock is not None:
                        os.close(connection.sock.detach())
                self._idle, self._pid = [], os.getpid()
            if self._idle:
                return self._idle.pop(), True
        return _Connection(self._host, self._port, self._tls), False

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE_CONNECTIONS and self._pid == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """As ``Store.close``."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        # Readers of one recording do not close their archive; its connections end with it.
        if getattr(self, "_idle", None):
            self.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        most: int,
        timeout_s: float,
        place: memoryview | None,
    ) -> _Response:
        """One request. A kept connection that the server has closed meanwhile is replaced by a fresh one at once.

        The body of a range is read to ``place``, where there is one.
        """
        while True:
            connection, was_used = self._take()
            try:
                if connection.sock is None:
                    connection.connect()
                assert connection.sock is not None
                connection.sock.settimeout(timeout_s)
                connection.request(method, self._path + target, headers={**self._headers, **headers})
                response = connection.getresponse()
            except (ConnectionError, http.client.BadStatusLine):
                connection.close()
                if was_used:
                    continue
                raise
            except BaseException:
                connection.close()
                raise
            break
        try:
            length = response.length
            if method != "HEAD" and length is not None and length > most:
                raise StoreError(self.url, f"{target}: the server sends {length} bytes where {most} were asked for")
            body: bytes | memoryview
            if place is not None and response.status == 206 and length is not None and length <= len(place):
                body = place[: _read_to(response, place[:length], connection.sock, timeout_s)]
            else:
                body = response.read() if length is not None else response.read(most + 1)
            if len(body) > most:
                raise StoreError(self.url, f"{target}: the server sends more than the {most} bytes that were asked for")
            if response.isclosed() and not response.will_close:
                self._give_back(connection)
            else:
                connection.close()
        except BaseException:
            connection.close()
            raise
        return _Response(response.status, response.headers, body)

    def _call(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        *,
        most: int = MAX_PAGE_LENGTH,
        timeout_s: float | None = None,
        place: memoryview | None = None,
    ) -> _Response:
        """A request with retries. Returns what succeeded, and 304, 404, 412 and 416; raises StoreError for all else."""

        def attempt() -> _Response:
            try:
                response = self._send(method, target, headers or {}, most, timeout_s or self._timeout_s, place)
            except ssl.SSLCertVerificationError as error:
                raise StoreError(
                    self.url,
                    f"its certificate is not trusted ({error.verify_message}): name its authority by the option ca",
                ) from error
            except http.client.HTTPException as error:
                raise TransientError(f"{type(error).__name__} {error}".strip()) from error
            except ssl.SSLError as error:
                raise TransientError(f"TLS: {error.reason or error}") from error
            except OSError as error:
                # A name that is not known is not known a moment later; all else of a network may pass.
                if isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN:
                    raise StoreError(self.url, f"{self._host}: {error.strerror}") from error
                raise TransientError(str(error) or type(error).__name__) from error
            self._check(response)
            return response

        response = self._retry.call(attempt, self.url, target.partition("?")[0].lstrip("/"))
        if self._is_served is None and response.status != 404:
            self._is_served = "Mainstem-Serve" in response.headers
        return response

    def _check(self, response: _Response) -> None:
        status = response.status
        if status in (200, 206, 304, 404, 410, 412, 416):
            return
        sentence = response.sentence() or http.client.responses.get(status, "")
        if status in (408, 425, 429, 500, 502, 503, 504):
            raise TransientError(f"HTTP {status} {sentence}", _retry_after(response.headers.get("Retry-After")))
        if status in (401, 403):
            state = "is not valid here" if "Authorization" in self._headers else "is needed"
            raise StoreError(self.url, f"HTTP {status}: a token {state}: {hint(self._host, self._token_port)}")
        if 300 <= status < 400:
            raise StoreError(self.url, f"HTTP {status}: redirections are not followed; name the place itself")
        raise StoreError(self.url, f"HTTP {status} {sentence}")

    def _missing(self, name: str, response: _Response) -> NoReturn:
        raise FileNotFoundError(2, response.sentence() or "No such file", f"{self.url}/{name}")

    # -- the store ---------------------------------------------------------------------------------------------------

    @property
    def is_served(self) -> bool:
        """Whether the server is ``mainstem serve``, as its responses say. Raises StoreError where there is no server."""
        if self._is_served is None:
            response = self._call("GET", "/v1/recordings?limit=1")
            self._is_served = "Mainstem-Serve" in response.headers
        return self._is_served

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:  # noqa: ARG002 - there is one level
        """As ``Store.list``; of ``mainstem serve`` only: other servers have no list that programs read."""
        if not self.is_served:
            raise StoreError(self.url, "a server that is not `mainstem serve` lists no files: they are read by name")
        after: str | None = ""
        while after is not None:
            page = self.page(f"/v1/files?prefix={quote(prefix, safe='')}&from={quote(after, safe='')}")
            for name, size, modified_ns in page["files"]:
                yield StoredFile(str(name), int(size), int(modified_ns))
            after = page["next"]

    def directories(self, prefix: str = "") -> Iterator[str]:  # noqa: ARG002 - there are none
        """As ``Store.directories``: none, a server has the recordings of one directory."""
        return iter(())

    def size(self, name: str) -> int:
        """As ``Store.size``."""
        response = self._call("HEAD", _target(name), most=0)
        if response.status in (404, 410):
            self._missing(name, response)
        length = response.headers.get("Content-Length", "")
        if response.status != 200 or not length.isdigit():
            raise StoreError(self.url, f"{name}: the server does not say how long it is")
        return int(length)

    def read(self, name: str, start: int, end: int) -> bytes:
        """As ``Store.read``."""
        return self.read_of(None, name, start, end)

    def read_of(self, tag: str | None, name: str, start: int, end: int) -> bytes:
        """As ``read``, of the file that has an entity tag.

        Args:
            tag: The tag that ``mainstem serve`` gives the file; None for any. Other servers have tags of their own, which are
                not compared.
            name: The file.
            start: The first byte.
            end: The byte after the last.

        Returns:
            The bytes; fewer only where the file ends.

        Raises:
            FileNotFoundError: The file is missing.
            StoreError: The file is another one now, or the server cannot be read.

        Example:
            ``store.read_of(identity_tag(descriptor, "0-0.rec"), "0-0.rec", 0, 4096)``
        """
        return bytes(self._read_range(tag, name, start, end, None))

    def read_to(self, tag: str | None, name: str, start: int, place: memoryview) -> int:
        """As ``read_of``, to a place in memory instead of new bytes, which spares copies.

        Args:
            tag: As of ``read_of``.
            name: The file.
            start: The first byte.
            place: Where the bytes go, and how many.

        Returns:
            How many there are; fewer than the place has only where the file ends.

        Raises:
            FileNotFoundError: The file is missing.
            StoreError: The file is another one now, or the server cannot be read.

        Example:
            ``store.read_to(None, "0-0.rec", 0, memoryview(bytearray(4096)))``
        """
        data = self._read_range(tag, name, start, start + len(place), place)
        if isinstance(data, bytes):
            place[: len(data)] = data
        return len(data)

    def _read_range(
        self, tag: str | None, name: str, start: int, end: int, place: memoryview | None
    ) -> bytes | memoryview:
        if start >= end:
            return b""
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if tag is not None and self._is_served:
            headers["If-Match"] = f'"{tag}"'
        response = self._call("GET", _target(name), headers, most=max(end - start, 64 << 10), place=place)
        if response.status in (404, 410):
            self._missing(name, response)
        if response.status == 412 or (
            tag is not None
            and "Mainstem-Serve" in response.headers
            and response.status == 206
            and response.headers.get("ETag") != f'"{tag}"'
        ):
            raise StoreError(self.url, f"{name} is of another recording now: the directory was made anew on the server")
        if response.status == 416:
            size = _UNSATISFIED.fullmatch(response.headers.get("Content-Range", ""))
            if size is not None and start < int(size[1]):
                raise StoreError(self.url, f"{name}: {response.sentence() or 'the range is refused'}")
            return b""
        if response.status == 200:
            # A server without ranges sends all of a file.
            if start == 0 or len(response.body) <= start:
                return response.body[start:end]
            raise StoreError(self.url, f"{name}: the server has no range requests")
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != start or len(response.body) != int(match[2]) + 1 - start:
            raise StoreError(self.url, f"{name}: the server sent another range than {start}-{end - 1}")
        return response.body

    def read_whole(self, name: str, limit: int) -> bytes:
        """A whole file, which is not sent again when it has not changed.

        Args:
            name: The file.
            limit: The most bytes.

        Returns:
            The bytes; the same object while the file is the same.

        Raises:
            FileNotFoundError: The file is missing.
            StoreError: It is longer than ``limit``, or the server cannot be read.

        Example:
            ``store.read_whole("archive.catalog", 1 << 30)``
        """
        tag, data = self._remembered.get(name, ("", b""))
        response = self._call("GET", _target(name), {"If-None-Match": tag} if tag else {}, most=limit)
        if response.status == 304:
            return data
        if response.status in (404, 410):
            self._missing(name, response)
        if response.status != 200:
            raise StoreError(self.url, f"{name}: HTTP {response.status}")
        tag, data = response.headers.get("ETag", ""), bytes(response.body)
        with self._lock:
            self._remembered.pop(name, None)
            if tag:
                self._remembered[name] = tag, data
            while len(self._remembered) > MAX_REMEMBERED_FILES:
                self._remembered.popitem(last=False)
        return data

    def page(self, target: str, *, wait_s: float = 0.0) -> Any:
        """What ``mainstem serve`` says at a path, as JSON.

        Args:
            target: The path below the URL, and its query.
            wait_s: How long the server may wait, by the query.

        Returns:
            The value; None when nothing has changed (304).

        Raises:
            FileNotFoundError: There is no such thing.
            StoreError: The server cannot be read.

        Example:
            ``store.page("/v1/recordings/0?after=4096&wait=10", wait_s=10)``
        """
        response = self._call("GET", target, timeout_s=self._timeout_s + wait_s)
        if response.status == 304:
            return None
        if response.status in (404, 410):
            self._missing(target.partition("?")[0].lstrip("/"), response)
        try:
            value = json.loads(bytes(response.body))
        except (ValueError, RecursionError) as error:
            raise StoreError(self.url, f"{target.partition('?')[0]} is not JSON") from error
        if not isinstance(value, dict):
            raise StoreError(self.url, f"{target.partition('?')[0]} is no JSON object")
        return value

    def put_if_absent(self, name: str, data: bytes) -> bool:  # noqa: ARG002 - of the interface
        """Raises StoreError: a server is read-only."""
        self._read_only(name)

    def put(self, name: str, data: bytes | Path) -> None:  # noqa: ARG002 - of the interface
        """Raises StoreError: a server is read-only."""
        self._read_only(name)

    def delete(self, name: str) -> None:
        """Raises StoreError: a server is read-only."""
        self._read_only(name)

    def _read_only(self, name: str) -> NoReturn:
        raise StoreError(
            self.url, f"{name}: http(s):// is read-only; write to the directory, or ship to an object store"
        )

    def local_path(self, name: str = "") -> Path | None:  # noqa: ARG002 - of the interface
        """As ``Store.local_path``: None."""
        return None


def _read_to(
    response: http.client.HTTPResponse, place: memoryview, sock: socket.socket | None, timeout_s: float
) -> int:
    """Reads a body of known length; raises IncompleteRead where the connection ends before it.

    From a plain socket the bytes go to their place in a few calls of the kernel, each of which waits for all that is left: else
    there is one for each packet or so, between which the interpreter changes threads.
    """
    at, length = 0, len(place)
    if sock is not None and not isinstance(sock, ssl.SSLSocket) and length > DIRECT_BYTES:
        # What came with the head.
        at = min(len(response.fp.peek()), length)
        at = response.readinto(place[:at]) if at else 0
        # The last byte is left to the response, which then knows that it is over.
        at = _receive(sock, place, at, length - 1, timeout_s)
        response.length = length - at
    while at < length:
        count = response.readinto(place[at:])
        if not count:
            raise http.client.IncompleteRead(b"", length - at)
        at += count
    # Takes the end of the body, so that the connection can be used again.
    response.read()
    return at


def _receive(sock: socket.socket, place: memoryview, at: int, end: int, timeout_s: float) -> int:
    """Fills ``place[at:end]`` from a socket; returns how far it came when the peer has ended. Raises TimeoutError."""
    # The socket's own time-out would make it one that returns what there is.
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", *divmod(int(timeout_s * 1e6), 1_000_000)))
    try:
        # The kernel wakes the thread for so much and no less, but for the rest of it.
        if end - at > 2 * WAKE_BYTES:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, WAKE_BYTES)
            at = _receive_all(sock, place, at, end - WAKE_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return _receive_all(sock, place, at, end)
    except BlockingIOError:
        raise TimeoutError("timed out") from None
    finally:
        sock.settimeout(timeout_s)


def _receive_all(sock: socket.socket, place: memoryview, at: int, end: int) -> int:
    while at < end:
        count = sock.recv_into(place[at:end], 0, socket.MSG_WAITALL)
        if not count:
            break
        at += count
    return at


def _target(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise ConfigurationError(f"{name!r} is no name of a file of a store")
    return "/" + quote(name, safe=_SEGMENT_SAFE)


def _seconds(text: str | None) -> float:
    try:
        seconds = DEFAULT_TIMEOUT_S if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ConfigurationError(f"timeout: {text!r} is no number of seconds from 0 to 3600")
    return seconds


def _tls(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(f"ca: {ca}: {error.strerror or error}") from None


def _retry_after(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"\d{1,4}", text) else None


def _is_this_machine(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
