"""Files below an http(s) URL, read-only: those of ``mainstem serve``, or of any server with range requests.

Requests go through urllib3, over persistent connections. ``mainstem serve`` marks its responses. Only it has listings and entity
tags that name the recording. A reader uses these to notice if a directory was recreated under the same URL (``read_of``). On other
servers, files are read by name.

obstore's HTTP store is not used, because it supports no query parameters and does not expose the headers of a response.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
from contextlib import contextmanager, suppress
from http.client import responses
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlunsplit

from mainstem._internal.error_texts import tls_problem
from mainstem._internal.urls import split_url
from mainstem.errors import ConfigurationError, StoreError, needs_extras
from mainstem.store.base import RemoteFiles, StoredFile, replaced
from mainstem.store.options import http_options, is_this_machine, proxy_for
from mainstem.store.retry import Retry, TransientError, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from urllib3 import BaseHTTPResponse

# The number of idle connections to keep. Further connections are closed when their request ends.
MAX_IDLE_CONNECTIONS = 16
CONNECT_TIMEOUT_S = 10.0
DEFAULT_TIMEOUT_S = 60.0
# The maximum length of a body whose length is not known in advance: a page of a listing.
MAX_PAGE_LENGTH = 64 << 20
# Longer listings are an error. `mainstem serve` lists no more files either.
MAX_LISTED = 1_000_000
# A range is copied in parts of this size. Larger parts need more memory, and smaller ones cause more switches between threads.
READ_BYTES = 1 << 20
TOKEN_VARIABLE = "MAINSTEM_SERVE_TOKEN"
HOST_VARIABLE = "MAINSTEM_SERVE_TOKEN_HOST"
MAX_TOKEN_LENGTH = 4096
_OK = (200, 206, 304, 404, 410, 412, 416)
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_UNSATISFIED = re.compile(r"bytes \*/(\d+)")
_SEGMENT_SAFE = "-._~/"


class _Response:
    """A response whose body was read. The body of a range is read into ``place`` if it fits."""

    def __init__(self, response: BaseHTTPResponse, limit: int, place: memoryview | None) -> None:
        self.status, self.headers = response.status, response.headers
        has_length = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        if response.status in (200, 206) and not has_length:
            # Whatever closes the connection ends such a body.
            raise ValueError("the server does not say how long it is")
        length = int(self.headers.get("Content-Length", 0))
        if length > limit:
            raise ValueError(f"the server sends {length} bytes where {limit} were asked for")
        if place is None or self.status != 206 or length > len(place):
            place = None
        parts, at = [], 0 if place is None else _read_into(response, place)
        while data := response.read(READ_BYTES):
            parts.append(data)
            at += len(data)
            if place is not None or at > limit:
                raise ValueError(f"the server sends more than the {limit} bytes that were asked for")
        self.body: bytes | memoryview = b"".join(parts) if place is None else place[:at]

    def sentence(self) -> str:
        """Return the server's error message, if the body has one."""
        try:
            value = json.loads(bytes(self.body))
        except (ValueError, RecursionError):
            return ""
        return str(value.get("error", "")) if isinstance(value, dict) else ""


def _read_into(response: Any, place: memoryview) -> int:
    """Read a body into ``place``. Return the number of bytes. Raises urllib3's errors.

    urllib3's ``readinto`` copies every byte two more times. The ``http.client`` response inside it reads directly into the buffer.
    """
    from urllib3.exceptions import IncompleteRead

    at = 0
    with response._error_catcher():
        while at < len(place) and (count := response._fp.readinto(place[at:])):
            at += count
        if response.length_remaining is not None:
            response.length_remaining -= at
            if at < len(place) and response.length_remaining:
                raise IncompleteRead(at, response.length_remaining)
    return at


class HttpStore(RemoteFiles):
    """Files below an http(s) URL.

    Options: ``token`` or ``token_file`` is sent as a bearer token. The default is the environment variable MAINSTEM_SERVE_TOKEN if
    MAINSTEM_SERVE_TOKEN_HOST names this host. ``ca`` is a file with the authorities to trust. ``timeout`` is the timeout of each
    request in seconds. ``insecure=true`` allows sending a token to another host without TLS.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None, *, retry: Retry | None = None) -> None:
        super().__init__(url.rstrip("/"))
        parts = split_url(url)
        self._host, port = parts.hostname or "", parts.port
        if parts.username is not None or parts.password is not None:
            raise ConfigurationError(
                "a user or password in a URL ends up in logs and plans; give the token with the option token_file or token,"
                f" or in {TOKEN_VARIABLE}"
            )
        if parts.query or parts.fragment:
            raise ConfigurationError(f"{url!r}: a URL of recordings cannot have a query or a fragment")
        self._is_tls = parts.scheme.lower() == "https"
        if parts.scheme.lower() not in ("http", "https") or not self._host:
            raise ConfigurationError(f"{url!r} is not an http(s) URL with a host")
        values = http_options(self.url, options or {})
        path = quote(parts.path.rstrip("/"), safe="%" + _SEGMENT_SAFE)
        self._base = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self._timeout_s: float = values.get("timeout", DEFAULT_TIMEOUT_S)
        if not 0 < self._timeout_s <= 3600:
            raise ConfigurationError(f"timeout must be above 0 and at most 3600 seconds (got {self._timeout_s:g})")
        self._authorities = _authorities(values.get("ca")) if self._is_tls else None
        self._headers = {"User-Agent": "mainstem", "Accept-Encoding": "identity"}
        self._token_port = port or (443 if self._is_tls else 80)
        if token := _token_for(values, self._host, self._token_port):
            if not self._is_tls and not values.get("insecure") and not is_this_machine(self._host):
                raise ConfigurationError(
                    f"{self.url}: the token would cross the network unencrypted: use https://, or the option insecure=true"
                )
            self._headers["Authorization"] = f"Bearer {token}"
        self._retry = retry or Retry()
        self._lock = threading.Lock()
        self._pool: Any = None
        self._pid = 0
        self._is_served: bool | None = None

    # -- requests ----------------------------------------------------------------------------------------------------

    def _connections(self) -> Any:
        """Return the connection pool of this process. A forked process does not use its parent's connections."""
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pool, self._pid = self._new_pool(), os.getpid()
            return self._pool

    def _new_pool(self) -> Any:
        with needs_extras():
            import urllib3
        options: dict[str, Any] = {"num_pools": 1, "maxsize": MAX_IDLE_CONNECTIONS, "ssl_context": self._authorities}
        if proxy := proxy_for(self._host, is_tls=self._is_tls):
            return urllib3.ProxyManager(proxy, **options)
        return urllib3.PoolManager(**options)

    def close(self) -> None:
        from urllib3 import exceptions

        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            # clear() leaves closing to the garbage collector, which may come to it late.
            with suppress(exceptions.LocationValueError):  # nothing was ever connected
                pool.connection_from_url(self._base).close()
            pool.clear()

    def __del__(self) -> None:
        # A reader of one recording does not close its archive, so the connections are closed when the archive is deleted.
        if getattr(self, "_pool", None) is not None:
            self.close()

    def _call(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        *,
        limit: int = MAX_PAGE_LENGTH,
        wait_s: float = 0.0,
        place: memoryview | None = None,
    ) -> _Response:
        """Send a request with retries.

        Returns successful responses, and those with status 304, 404, 410, 412 and 416. Raises StoreError for all others.
        """
        pool, name = self._connections(), target.partition("?")[0].lstrip("/")
        from urllib3 import Timeout

        arguments = {
            "headers": {**self._headers, **(headers or {})},
            "timeout": Timeout(connect=CONNECT_TIMEOUT_S, read=self._timeout_s + wait_s),
            "retries": False,
            "redirect": False,
            "preload_content": False,
            "decode_content": False,
        }

        def attempt() -> _Response:
            with self._mapped_errors(target):
                response = pool.urlopen(method, self._base + target, **arguments)
                try:
                    read = _Response(response, limit, place)
                except BaseException:
                    response.close()
                    raise
                response.release_conn()
            self._check(read)
            return read

        response = self._retry.call(attempt, self.url, name)
        if self._is_served is None and response.status != 404:
            self._is_served = "Mainstem-Serve" in response.headers
        return response

    @contextmanager
    def _mapped_errors(self, target: str) -> Iterator[None]:
        from urllib3 import exceptions

        try:
            yield
        except exceptions.SSLError as error:
            if isinstance(reason := error.args[0] if error.args else None, ssl.SSLCertVerificationError):
                raise StoreError(
                    self.url,
                    f"its certificate is not trusted ({reason.verify_message}); set the option ca to its authority",
                ) from error
            reason_text = tls_problem(reason) if isinstance(reason, ssl.SSLError) else sentence(error)
            raise TransientError(f"TLS: {reason_text}") from error
        except exceptions.LocationValueError as error:
            raise StoreError(self.url, sentence(error)) from error
        except (exceptions.HTTPError, OSError) as error:
            raise TransientError(sentence(error)) from error
        except ValueError as error:
            raise StoreError(self.url, f"{target}: {error}") from error

    def _check(self, response: _Response) -> None:
        status = response.status
        if status in _OK:
            return
        text = response.sentence() or responses.get(status, "")
        if status in _TRANSIENT:
            asked = response.headers.get("Retry-After", "")
            raise TransientError(f"HTTP {status} {text}", float(asked) if re.fullmatch(r"\d{1,4}", asked) else None)
        if status in (401, 403):
            state = "is not valid here" if "Authorization" in self._headers else "is needed"
            raise StoreError(self.url, f"HTTP {status}: a token {state}: {_token_hint(self._host, self._token_port)}")
        if 300 <= status < 400:
            raise StoreError(self.url, f"HTTP {status}: redirects are not followed; use the final URL")
        raise StoreError(self.url, f"HTTP {status} {text}")

    def _found(self, name: str, response: _Response) -> None:
        if response.status in (404, 410):
            raise FileNotFoundError(2, response.sentence() or "No such file", f"{self.url}/{name}")

    def _target(self, name: str) -> str:
        return "/" + quote(self.checked(name), safe=_SEGMENT_SAFE)

    # -- the store ---------------------------------------------------------------------------------------------------

    @property
    def is_served(self) -> bool:
        """Whether the server is ``mainstem serve``, according to its responses. Raises StoreError if there is no server."""
        if self._is_served is None:
            self._is_served = "Mainstem-Serve" in self._call("GET", "/v1/recordings?limit=1").headers
        return self._is_served

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[StoredFile]:  # noqa: ARG002 - there is one level
        """Yield the files of ``mainstem serve``. Raises StoreError for other servers, which have no machine-readable listing."""
        if not self.is_served:
            raise StoreError(self.url, "only `mainstem serve` lists files; from other servers read them by name")
        for row in self.rows(f"/v1/files?prefix={quote(prefix, safe='')}", "files", ""):
            match row:
                case [str(name), int(size), int(modified_ns)] if size >= 0:
                    yield StoredFile(name, size, modified_ns)
                case _:
                    raise StoreError(self.url, "the server sent a listing in another form")

    def directories(self, prefix: str = "") -> Iterator[str]:  # noqa: ARG002
        """Yield nothing: a server has the recordings of one directory."""
        return iter(())

    def _head(self, name: str) -> _Response:
        response = self._call("HEAD", self._target(name), limit=1 << 63)
        self._found(name, response)
        return response

    def size(self, name: str) -> int:
        response = self._head(name)
        length = response.headers.get("Content-Length", "")
        if response.status != 200 or not length.isdigit():
            raise StoreError(self.url, f"{name}: the server does not say how long it is")
        return int(length)

    def read(self, name: str, start: int, end: int) -> bytes:
        return self.read_of(None, name, start, end)

    def read_of(self, tag: str | None, name: str, start: int, end: int) -> bytes:
        """Like ``read``, but require that the file has the entity tag ``tag`` on ``mainstem serve``.

        Raises StoreError if the name now belongs to another file. For other servers, the tag is ignored.
        """
        return bytes(self._read_range(name, start, end, None, tag=tag)[0])

    def read_version(
        self, name: str, start: int, end: int, version: str | None, place: memoryview | None = None
    ) -> tuple[bytes, str]:
        """Like ``Store.read_version``; a body that is read into ``place`` is returned as a view of it."""
        data, found = self._read_range(name, start, end, place, version=version)
        return (data if place is not None else bytes(data)), found  # type: ignore[return-value]

    def read_to(self, tag: str | None, name: str, start: int, place: memoryview) -> int:
        """Like ``read_of``, but read into memory, which saves copies. Return the number of bytes."""
        data, _ = self._read_range(name, start, start + len(place), place, tag=tag)
        if isinstance(data, bytes):
            place[: len(data)] = data
        return len(data)

    def _read_range(
        self,
        name: str,
        start: int,
        end: int,
        place: memoryview | None,
        *,
        tag: str | None = None,
        version: str | None = None,
    ) -> tuple[bytes | memoryview, str]:
        """Return a range and the version of the file that it is from. ``tag`` is for `mainstem serve`, ``version`` for others."""
        if start >= end:
            return b"", ""
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if tag is not None and self._is_served:
            headers["If-Match"] = f'"{tag}"'
        elif version is not None and version.startswith('"'):
            headers["If-Match"] = version
        response = self._call("GET", self._target(name), headers, limit=max(end - start, 64 << 10), place=place)
        self._found(name, response)
        if tag is None and response.status == 412:
            raise replaced(self.url, name)
        if response.status == 412 or (
            tag is not None
            and "Mainstem-Serve" in response.headers
            and response.status == 206
            and response.headers.get("ETag") != f'"{tag}"'
        ):
            raise StoreError(
                self.url, f"{name} belongs to another recording now: the directory was recreated on the server"
            )
        content_range = response.headers.get("Content-Range", "")
        if response.status == 416:
            size = _UNSATISFIED.fullmatch(content_range)
            if size is not None and start < int(size[1]):
                raise StoreError(self.url, f"{name}: {response.sentence() or 'the range is refused'}")
            # A file that was replaced by a shorter one has not ended here. Not every server sends its version with this status.
            if version is not None and _version(self._head(name)) != version:
                raise replaced(self.url, name)
            return b"", ""
        found = _version(response)
        if version is not None and found != version:
            raise replaced(self.url, name)
        if response.status == 200:
            # A server that does not support ranges sends the whole file.
            if start == 0 or len(response.body) <= start:
                return response.body[start:end], found
            raise StoreError(self.url, f"{name}: the server has no range requests")
        match = _CONTENT_RANGE.fullmatch(content_range)
        if match is None or not _is_range(match, start, end) or len(response.body) != int(match[2]) + 1 - start:
            raise StoreError(self.url, f"{name}: the server sent another range than {start}-{end - 1}")
        return response.body, found

    def read_whole(self, name: str, limit: int, known: tuple[str, bytes] = ("", b"")) -> tuple[str, bytes]:
        """Return the entity tag and the bytes of a whole file.

        If the file has not changed since it was ``known``, the server does not send it again, and ``known`` is returned.
        """
        tag, _ = known
        response = self._call("GET", self._target(name), {"If-None-Match": tag} if tag else {}, limit=limit)
        if response.status == 304:
            return known
        self._found(name, response)
        if response.status != 200:
            raise StoreError(self.url, f"{name}: HTTP {response.status}")
        return response.headers.get("ETag", ""), bytes(response.body)

    def page(self, target: str, *, wait_s: float = 0.0) -> Any:
        """Return the JSON object that ``mainstem serve`` has at a path, or None if nothing has changed (304).

        ``wait_s`` is how long the query allows the server to wait.
        """
        response = self._call("GET", target, wait_s=wait_s)
        if response.status == 304:
            return None
        path = target.partition("?")[0]
        self._found(path.lstrip("/"), response)
        try:
            value = json.loads(bytes(response.body))
        except (ValueError, RecursionError) as error:
            raise StoreError(self.url, f"{path} is not JSON") from error
        if not isinstance(value, dict):
            raise StoreError(self.url, f"{path} is not a JSON object")
        return value

    def rows(self, target: str, key: str, first: Any) -> Iterator[Any]:
        """Yield the entries of all pages of a list of ``mainstem serve``, from ``first`` on: a number or a name.

        Raises StoreError if a page has another form, if the next page does not follow it, or if there are more than ``MAX_LISTED``.
        """
        count, after = 0, first
        while True:
            page = self.page(f"{target}&from={quote(str(after), safe='')}") or {}
            rows, following = page.get(key), page.get("next", "")
            if not isinstance(rows, list):
                raise StoreError(self.url, "the server sent a listing in another form")
            count += len(rows)
            if count > MAX_LISTED:
                raise StoreError(self.url, f"the server lists more than {MAX_LISTED} entries")
            yield from rows
            if following is None:
                return
            if type(following) is not type(first) or following <= after:
                raise StoreError(self.url, f"the server's listing does not advance after {after!r}"[:200])
            after = following

    def put_if_absent(self, name: str, data: bytes) -> bool:  # noqa: ARG002
        self._read_only(name)

    def put(self, name: str, data: bytes | Path) -> None:  # noqa: ARG002
        self._read_only(name)

    def delete(self, name: str) -> None:
        self._read_only(name)

    def _read_only(self, name: str) -> NoReturn:
        raise StoreError(
            self.url, f"{name}: http(s):// is read-only; write to the directory, or ship to an object store"
        )


def _is_range(sent: re.Match[str], start: int, end: int) -> bool:
    """Return whether a Content-Range is all of ``[start, end)`` that the file has, as far as it says how long the file is."""
    stop = int(sent[2]) + 1
    return int(sent[1]) == start and (stop <= end if sent[3] == "*" else stop == min(end, int(sent[3])))


def _version(response: _Response) -> str:
    """Return the version of a file: its entity tag or, if it has no strong one, its length and modification time."""
    tag: str = response.headers.get("ETag", "")
    if tag.startswith('"'):
        return tag
    length = response.headers.get("Content-Range", "").rpartition("/")[2] or response.headers.get("Content-Length", "")
    return f"{tag} {length} {response.headers.get('Last-Modified', '')}"


def _authorities(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise ConfigurationError(f"ca: {ca}: {tls_problem(error)}") from None
    except OSError as error:
        raise ConfigurationError(f"ca: {ca}: {error.strerror or error}") from None


# -- the bearer token of a server --------------------------------------------------------------------------------------
#
# A token from the options belongs to the URL that the options are for. A token from the environment applies to everything that the
# process reads. It is sent only to the hosts that a second variable names, because any other server could misuse it.


def _token_for(options: Mapping[str, str], host: str, port: int) -> str:
    """Return the token for a server, or an empty string if there is none.

    Raises ConfigurationError if the token file cannot be read, or if a header cannot contain the token.
    """
    token = options.get("token", "")
    if not token and (path := options.get("token_file")):
        token = _read_token(path)
    if not token and _is_named(host, port):
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii() or not (token.isprintable() or not token):
        raise ConfigurationError("the token contains characters that a header cannot have")
    return token


def _is_named(host: str, port: int) -> bool:
    """Return whether the environment allows sending its token to this server.

    The variable has ``HOST`` or ``HOST:PORT``, or several of them separated by commas.
    """
    bare = f"[{host}]" if ":" in host else host
    names = {name.strip().lower() for name in os.environ.get(HOST_VARIABLE, "").split(",")}
    return bool(names & {host.lower(), bare.lower(), f"{bare}:{port}".lower()})


def _token_hint(host: str, port: int) -> str:
    """Return how to provide a token, for an error message."""
    text = f"the option token_file or token, or {TOKEN_VARIABLE} and {HOST_VARIABLE}"
    if os.environ.get(TOKEN_VARIABLE) and not _is_named(host, port):
        text += f" ({TOKEN_VARIABLE} is set, but {HOST_VARIABLE} does not name {host})"
    return text


def _read_token(path: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"token_file: {path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    token = next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")
    if not token:
        raise ConfigurationError(f"token_file: {path} holds no token")
    return token
