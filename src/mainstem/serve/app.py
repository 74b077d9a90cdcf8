"""Handles the requests: checks them and builds the responses (docs/recordings.md, "serve").

``GET /v1/recordings`` and ``/v1/files`` return pages of lists. ``GET /v1/recordings/N?after=P&wait=S`` waits until recording N is
recorded past P. ``/NAME`` is a file. The path of a request is compared without decoding it. A query can have only the parameters
that the path supports, each once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem._internal.exposure import is_literal_host
from mainstem._internal.prometheus import CONTENT_TYPE
from mainstem.errors import RecordingError
from mainstem.recording.archive import IDENTITY_FILE
from mainstem.recording.catalog import CATALOG_FILE, NULL, RecordingDescriptor
from mainstem.serve.http_server import Refusal, checked_target, log
from mainstem.serve.position_poller import PositionPoller
from mainstem.serve.ranges import RangeError, parse_range
from mainstem.serve.responses import BytesResponse, FileResponse, Response, json_bytes
from mainstem.serve.served_directory import CatalogView, NotServedError, ServedDirectory, TooManyFilesError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aiohttp import web

    from mainstem._internal.request_target import Target
    from mainstem.serve.access import Access
    from mainstem.serve.limits import Limits
    from mainstem.serve.metrics import ServerMetrics

_RECORDING = re.compile(r"/v1/recordings/(0|[1-9][0-9]{0,18})", re.ASCII)
_PARAMETER = re.compile(r"([a-z]+)=([A-Za-z0-9._-]*)", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,19}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?", re.ASCII)
_DESCRIPTOR_FIELDS = tuple(field.name for field in fields(RecordingDescriptor) if field.compare)


class Application:
    """Handles the requests of one server."""

    def __init__(
        self,
        path: Path,
        access: Access,
        limits: Limits,
        metrics: ServerMetrics,
        *,
        literal_hosts_only: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._directory = ServedDirectory(path, clock, listed_files=limits.listed_files)
        self._access, self._limits, self._metrics = access, limits, metrics
        self._literal_hosts_only = literal_hosts_only
        self._clock = clock
        self._poller = PositionPoller()
        self._catalog_lock = asyncio.Lock()
        self._names_lock = asyncio.Lock()

    def end_waits(self) -> None:
        self._poller.close()

    def close(self) -> None:
        self._directory.close()

    async def handle(self, request: web.BaseRequest) -> Response:
        """Return the response to a request. Never raises because of what a peer sent."""
        try:
            target = self._checked(request)
            return await self._route(request, target.path, target.query)
        except Refusal as refusal:
            return self._error(refusal.status, refusal.sentence, refusal.headers)
        except NotServedError as error:
            return self._error(404, str(error))
        except RecordingError as error:
            # The error contains the path of the directory, so it is only for the operator.
            self._log(logging.ERROR, "damage", f"a request failed: {error}")
            return self._error(500, "the recordings are corrupt; the server's log has more")
        except OSError as error:
            self._log(logging.ERROR, "disk", f"a request failed: {error}")
            return self._error(503, "the directory cannot be read; the server's log has more", {"Retry-After": "1"})

    def _respond(self, status: int, body: bytes | memoryview, headers: Mapping[str, str]) -> Response:
        return BytesResponse(status, headers, self._limits, self._metrics, body)

    def _json(self, value: Any, headers: Mapping[str, str] | None = None, *, status: int = 200) -> Response:
        return self._respond(status, json_bytes(value), {"Content-Type": "application/json", **(headers or {})})

    def _not_modified(self, tag: str) -> Response:
        return self._respond(304, b"", {"ETag": f'"{tag}"'})

    def _error(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
        response = self._json({"error": sentence}, headers, status=status)
        if status in (400, 401, 405, 413, 421):
            response.force_close()
        return response

    def _log(self, level: int, kind: str, text: str) -> None:
        log.log(level, kind, text, self._clock.monotonic_ns())

    def _checked(self, request: web.BaseRequest) -> Target:
        if not self._access.permits(request.headers.get("Authorization")):
            self._log(logging.WARNING, "token", f"a request of {request.remote} without a valid token is refused")
            raise Refusal(401, "a valid token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        target = checked_target(request)
        if self._literal_hosts_only and not is_literal_host(target.host):
            raise Refusal(421, "without a token this server is named by its address or as localhost only")
        return target

    async def _route(self, request: web.BaseRequest, path: str, query: str) -> Response:
        if path == "/v1/recordings":
            return await self._recordings(request, _parameters(query, "from", "limit", "active", "after", "wait"))
        if path == "/v1/files":
            return await self._files(request, _parameters(query, "prefix", "from", "limit"))
        if match := _RECORDING.fullmatch(path):
            return await self._recording(int(match[1]), _parameters(query, "after", "wait"))
        if path == "/metrics":
            return self._respond(200, self._metrics.render().encode(), {"Content-Type": CONTENT_TYPE})
        _parameters(query)
        if path == f"/{CATALOG_FILE}":
            view = await self._view()
            return self._bytes(request, view.data, view.tag)
        if path == f"/{IDENTITY_FILE}":
            data = self._directory.identity_bytes()
            return self._bytes(request, data, hashlib.sha256(data).hexdigest()[:32])
        return await self._file(request, path[1:])

    # -- lists -------------------------------------------------------------------------------------------------------

    async def _view(self) -> CatalogView:
        if self._directory.is_cheap():
            return self._directory.catalog()
        async with self._catalog_lock:
            return await asyncio.to_thread(self._directory.catalog)

    async def _recordings(self, request: web.BaseRequest, query: Mapping[str, str]) -> Response:
        first, limit = _whole(query, "from", 0), self._limit(query)
        only_active = query.get("active", "") == "1"
        body, tag = self._page(await self._view(), first, limit, only_active)
        after, seconds = query.get("after", ""), self._wait_seconds(query)
        if after == tag and seconds:

            def is_changed() -> bool:
                return self._chosen(self._directory.catalog(), first, limit, only_active)[1] != after

            await self._waited(is_changed, seconds)
            body, tag = self._page(await self._view(), first, limit, only_active)
        if after == tag or _matches(request.headers.get("If-None-Match"), tag):
            return self._not_modified(tag)
        return self._json(body, {"ETag": f'"{tag}"'})

    def _page(self, view: CatalogView, first: int, limit: int, only_active: bool) -> tuple[dict[str, Any], str]:
        """Return a page of recordings and its entity tag, from the current catalog and positions."""
        chosen, tag = self._chosen(view, first, limit, only_active)
        rows = [self._row(descriptor) for descriptor in chosen[:limit]]
        follows = chosen[limit].recording_id if len(chosen) > limit else None
        return {"catalog": view.tag, "version": tag, "recordings": rows, "next": follows}, tag

    def _chosen(
        self, view: CatalogView, first: int, limit: int, only_active: bool
    ) -> tuple[list[RecordingDescriptor], str]:
        """Return the recordings of a page, with one more if another page follows, and the page's entity tag."""
        chosen = [
            descriptor
            for descriptor in view.descriptors
            if descriptor.recording_id >= first and (not only_active or descriptor.stop_position == NULL)
        ][: limit + 1]
        positions = [self._position(descriptor) for descriptor in chosen if descriptor.stop_position == NULL]
        text = f"{view.tag} {positions} {first} {limit} {only_active}"
        return chosen, hashlib.sha256(text.encode()).hexdigest()[:32]

    def _position(self, descriptor: RecordingDescriptor) -> int | None:
        try:
            return self._directory.recorded_position(descriptor)
        except RecordingError:
            return NULL

    def _row(self, descriptor: RecordingDescriptor) -> dict[str, Any]:
        row: dict[str, Any] = {name: getattr(descriptor, name) for name in _DESCRIPTOR_FIELDS}
        row["identity"] = str(descriptor.identity)
        row["recorded_position"] = position = self._position(descriptor)
        if position == NULL:
            row["problem"] = "its positions are corrupt"
        return row

    async def _recording(self, recording_id: int, query: Mapping[str, str]) -> Response:
        after, seconds = _whole(query, "after", -1), self._wait_seconds(query)
        descriptor = (await self._view()).by_id.get(recording_id)
        if descriptor is None:
            raise Refusal(404, f"the catalog has no recording {recording_id}")
        if "after" in query and seconds:
            before = descriptor

            def is_past() -> bool:
                now = self._directory.catalog().by_id.get(recording_id)
                # The request also ends if the recording has stopped or was replaced.
                return now != before or (self._directory.recorded_position(now) or 0) > after

            if descriptor.stop_position == NULL:
                await self._waited(is_past, seconds)
            descriptor = (await self._view()).by_id.get(recording_id)
            if descriptor is None:
                raise Refusal(404, f"the catalog has no recording {recording_id}")
        return self._json(self._row(descriptor))

    async def _waited(self, passed: Any, seconds: float) -> None:
        self._metrics.waits += 1
        try:
            await self._poller.wait(passed, seconds)
        finally:
            self._metrics.waits -= 1

    async def _files(self, request: web.BaseRequest, query: Mapping[str, str]) -> Response:
        prefix, after, limit = query.get("prefix", ""), query.get("from", ""), self._limit(query)
        # Only one listing runs at a time. Requests that have waited for it then use its names.
        async with self._names_lock:
            try:
                names = await asyncio.to_thread(self._directory.names)
            except TooManyFilesError:
                raise Refusal(
                    507, f"the directory has more than {self._limits.listed_files} files and is not listed"
                ) from None
        rows, has_more = self._directory.page(names, prefix, after, limit)
        body = json_bytes({"files": rows, "next": rows[-1][0] if has_more and rows else None})
        tag = hashlib.sha256(body).hexdigest()[:32]
        if _matches(request.headers.get("If-None-Match"), tag):
            return self._not_modified(tag)
        return self._respond(200, body, {"Content-Type": "application/json", "ETag": f'"{tag}"'})

    def _limit(self, query: Mapping[str, str]) -> int:
        return max(1, min(_whole(query, "limit", self._limits.page_entries), self._limits.page_entries))

    def _wait_seconds(self, query: Mapping[str, str]) -> float:
        text = query.get("wait", "0")
        if not _SECONDS.fullmatch(text):
            raise Refusal(400, "wait must be a number of seconds")
        return min(float(text), self._limits.wait_seconds)

    # -- files -------------------------------------------------------------------------------------------------------

    def _range(self, request: web.BaseRequest, size: int, tag: str) -> tuple[int, int, int, dict[str, str]]:
        """Return the start, end, status and header fields of a response.

        Raises Refusal if a condition does not hold, or if the range is invalid.
        """
        condition = request.headers.get("If-Match")
        if condition is not None and not _matches(condition, tag):
            raise Refusal(412, "the file was replaced: the directory was recreated", {"ETag": f'"{tag}"'})
        headers = {"ETag": f'"{tag}"', "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        field = request.headers.get("Range")
        if_range = request.headers.get("If-Range")
        if if_range is not None and not _matches(if_range, tag):
            field = None
        if request.method == "HEAD":
            return 0, size, 200, headers
        try:
            chosen = parse_range(field, size, self._limits.response_bytes)
        except RangeError as error:
            raise Refusal(416, str(error), {"Content-Range": f"bytes */{size}"}) from None
        if chosen is None:
            return 0, size, 200, headers
        start, end = chosen
        return start, end, 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}

    def _bytes(self, request: web.BaseRequest, data: bytes, tag: str) -> Response:
        """Return the response with a file that is sent from memory. Its entity tag is derived from its bytes."""
        if _matches(request.headers.get("If-None-Match"), tag):
            return self._not_modified(tag)
        start, end, status, headers = self._range(request, len(data), tag)
        return self._respond(status, memoryview(data)[start:end], headers)

    async def _file(self, request: web.BaseRequest, name: str) -> Response:
        fd = self._directory.open_file(name)
        try:
            served = self._directory.described(fd, name, await self._view())
            start, end, status, headers = self._range(request, served.size, served.tag)
            if served.recorded_position is not None:
                headers["Mainstem-Recorded-Position"] = str(served.recorded_position)
            if request.method != "HEAD" and self._metrics.transfers >= self._limits.transfers:
                raise Refusal(503, "the server is sending its maximum number of files", {"Retry-After": "1"})
            file = os.fdopen(fd, "rb", buffering=0)
        except BaseException:
            os.close(fd)
            raise
        return FileResponse(status, headers, self._limits, self._metrics, file, start, end, served.head)


def _parameters(query: str, *names: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for part in query.split("&") if query else ():
        match = _PARAMETER.fullmatch(part)
        if match is None or match[1] not in names or match[1] in parameters:
            raise Refusal(400, f"the query has parameters: {', '.join(names) or 'none'}; each at most once")
        parameters[match[1]] = match[2]
    return parameters


def _whole(query: Mapping[str, str], name: str, default: int) -> int:
    if name not in query:
        return default
    if not _WHOLE.fullmatch(query[name]):
        raise Refusal(400, f"{name} must be a whole number")
    return int(query[name])


def _matches(header: str | None, tag: str) -> bool:
    return header is not None and any(part.strip() in ("*", f'"{tag}"') for part in header.split(","))
