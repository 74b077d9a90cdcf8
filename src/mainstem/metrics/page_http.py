"""The part of HTTP/1.1 that a page for scrapes needs: request heads and complete responses. Without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from mainstem._internal.exposure import host_name, is_literal_host
from mainstem._internal.printable import printable
from mainstem._internal.request_target import parse_target

PATH = "/metrics"
END_OF_HEAD = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request.

    Attributes:
        method: The method as it was sent.
        path: The path of the target.
        host: The host of the target, or else of the ``Host`` field; empty if there is none.
    """

    method: str
    path: str
    host: str


def parse_head(head: bytes) -> Request | None:
    """Return the request with this head, which may be followed by more bytes, or None if it is not an HTTP/1.x request."""
    first, *fields = head.partition(END_OF_HEAD)[0].decode("latin-1").split("\r\n")
    parts = first.split(" ")
    hosts = [value.strip() for name, _, value in (field.partition(":") for field in fields) if name.lower() == "host"]
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or len(hosts) > 1:
        return None
    target = parse_target(parts[1], hosts[0] if hosts else "")
    return None if target is None else Request(parts[0], target.path, target.host)


def refusal(request: Request | None, *, own_name: str | None) -> bytes | None:
    """Return the error response to a request that is not for the page, or None if it is.

    ``own_name`` is the name by which the request may refer to this host, in addition to addresses. None allows any name.
    """
    if request is None:
        return response(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1.1 request")
    if request.method not in ("GET", "HEAD"):
        return response(HTTPStatus.METHOD_NOT_ALLOWED, "the page is read-only: GET and HEAD", "Allow: GET, HEAD")
    is_own = own_name is None or is_literal_host(request.host) or host_name(request.host) == own_name.lower()
    if not is_own:
        return response(HTTPStatus.MISDIRECTED_REQUEST, "open this page by its address")
    if request.path != PATH:
        return response(HTTPStatus.NOT_FOUND, f"the page is {PATH}")
    return None


def response(status: HTTPStatus, text: str, *fields: str) -> bytes:
    """Return a complete response with one line of text."""
    return page_response(status, f"{printable(text)}\n".encode(), "text/plain; charset=utf-8", *fields)


def page_response(status: HTTPStatus, body: bytes, content_type: str, *fields: str) -> bytes:
    """Return a complete response. The connection ends after it."""
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *fields,
    ]
    return "\r\n".join(head).encode() + END_OF_HEAD + body


def without_body(reply: bytes) -> bytes:
    """Return the response to a HEAD request: ``reply`` without its body."""
    return reply.partition(END_OF_HEAD)[0] + END_OF_HEAD
