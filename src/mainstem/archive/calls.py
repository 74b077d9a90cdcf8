"""The code that the blocking and the asyncio client of an archive share: everything except waiting.

A call that may wait is written as steps (``aeron/client/waiting.py``). Closing them gives up its request. Messages that the archive
still sends for that request are skipped.

A lost session does not end the client. Calls whose request may have reached the archive fail with ConnectionLost. The next call
reconnects, within its own timeout, and so does a call whose request certainly did not reach the archive.

The application does not have to poll. Between calls, the client's worker (a thread or a task) reads the archive's pings, without
which the archive would end the session after some minutes, and keeps signals and late errors as events.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections import deque
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from mainstem._internal.clock import Deadline
from mainstem._internal.frozen import frozen
from mainstem._internal.validation import as_bytes, check_int
from mainstem._version import __version__
from mainstem.aeron.agent import AgentTerminated
from mainstem.aeron.channel import ChannelUri, with_values
from mainstem.aeron.client.base import conductor_of
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.aeron.client.polled import polled
from mainstem.aeron.client.publication import ExclusivePublication, offer_error_of
from mainstem.aeron.client.subscription import Subscription
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.archive.channels import (
    POSITION_KEYS,
    default_response_channel,
    has_any_port,
    with_bound_port,
    with_control_defaults,
)
from mainstem.archive.messages import NULL, ResponseCode, SourceLocation
from mainstem.archive.session import KNOWS_ARCHIVE_ID, ClientSession, response_error
from mainstem.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    Delivery,
    LocalProtocolError,
    MainstemError,
    OfferError,
    RemoteProtocolError,
    Timeout,
)
from mainstem.recording.catalog import RecordingDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from mainstem.aeron.client.base import AeronBase
    from mainstem.aeron.client.operation import Operation
    from mainstem.aeron.client.waiting import Steps
    from mainstem.archive.messages import Message
    from mainstem.archive.session import Request

T = TypeVar("T")
S = TypeVar("S")

CONTROL_STREAM_ID = 10
RESPONSE_STREAM_ID = 20
TIMEOUT = 10.0  # seconds: the default limit of a call
MAX_CLIENT_NAME = 100  # characters
WORKER_INTERVAL_S = 0.25  # how often the archive's messages are read between calls
MESSAGES_AT_ONCE = 64
PAGE = 256  # recordings listed per request
MAX_COUNT = (1 << 31) - 1
_AND_FOLLOW, _AND_STOP = -1, -2  # special values of a replay's length
NO_END = (1 << 63) - 1  # end of a recording that has not stopped
ARRIVAL_S = 10.0  # how long the stream of a replay can take to arrive
SETTLING_S = 5.0  # how long an archive can take to note that a recording has stopped, after its replays have ended
ASKING_S = 0.1  # between requests for that
# Requests that an older archive silently ignores, and that the control protocol's version does not reveal.
_SINCE = {"ReplayTokenRequest": "1.45", "UpdateChannelRequest": "1.49"}
# Requests that the control protocol's version does reveal: the first version, and its release.
_VERSIONS = {"PurgeRecordingRequest": (1 << 16 | 6 << 8, "1.32"), "ReplicateRequest2": (1 << 16 | 7 << 8, "1.33")}


@frozen
class ClientStats:
    """Statistics of a client.

    Attributes:
        pending: Requests that are waiting for a response.
        events: Signals and late errors that have not been consumed yet.
        dropped_events: Signals and late errors that were dropped because they were not consumed.
        refused: Messages that could not be decoded, by the rule that they violate.
    """

    pending: int
    events: int
    dropped_events: int
    refused: Mapping[str, int]


@frozen
class RecordingSubscription:
    """A subscription through which an archive records.

    Attributes:
        subscription_id: Its id, for ``stop_recording_subscription``.
        stream_id: The stream id.
        channel: The channel without the parameters that do not select a stream.
    """

    subscription_id: int
    stream_id: int
    channel: str


def document(method: Any, call: Callable[..., Any], result: str = "", *, is_twin: bool = False) -> None:
    """Give a client's method the name, parameters and documentation of a call; of the asyncio twin's, only the first line.

    The method returns ``result``, or what the call's steps return.
    """
    signature = inspect.signature(call)
    if not result:
        result = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
        result = "Subscription" if result == "S" else result
    method.__name__ = call.__name__
    method.__qualname__ = f"Client.{call.__name__}"
    method.__doc__ = (call.__doc__ or "").partition("\n")[0] if is_twin else call.__doc__
    method.__signature__ = signature.replace(return_annotation=result)
    method.__annotations__ = {**call.__annotations__, "return": result}


class Promise(NamedTuple):
    """Where a recording ended when its replay began, and whether the replay ends there. ``(0, False)`` if that is not known."""

    end: int
    is_final: bool


class StartedReplay(NamedTuple):
    """An accepted replay: the replay session id, and the id of the request, which late errors carry."""

    replay_id: int
    correlation_id: int


class Calls(Generic[S]):
    """A control session over Aeron, and its calls. Only one thread at a time may run a step.

    The public calls are those of both clients, which run them with ``run``.
    """

    role_name = "mainstem-archive-client"
    subscription_kind: Any = Subscription
    lock: AbstractContextManager[object] = nullcontext()

    def __init__(
        self,
        aeron: AeronBase,
        channel: str,
        *,
        response_channel: str | None,
        stream_id: int,
        response_stream_id: int,
        credentials: bytes,
        on_challenge: Callable[[bytes], bytes] | None,
        client_name: str,
        reconnects: bool = True,
    ) -> None:
        if len(client_name) > MAX_CLIENT_NAME:
            raise ConfigurationError(
                f"client_name: {len(client_name)} characters exceed the limit of {MAX_CLIENT_NAME}"
            )
        self._aeron = aeron
        self.conductor = conductor_of(aeron)
        self.clock = aeron.context.clock
        self.channel = channel
        self._stream_id = stream_id
        self._response_channel = default_response_channel(channel) if response_channel is None else response_channel
        self._response_stream_id = response_stream_id
        self.session = ClientSession(
            aeron.next_correlation_id,
            credentials=as_bytes(credentials),
            on_challenge=on_challenge,
            client_info=f"name={client_name} version={__version__} commit=mainstem",
        )
        self.lost: ConnectionLost | None = None
        self.closed = False
        self._reconnects = reconnects
        self._is_connecting = False
        self.loss = ""  # why the last session was lost
        self._requests: Any = None
        self._responses: Any = None
        self._had_image = False
        self._arrived: deque[bytes] = deque()
        self._listing: Request | None = None
        self._listed = 0  # the number of responses that completes the listing
        self._client: Callable[[], ClientBase[S] | None] = lambda: None
        self.dropped: deque[Callable[[], None]] = deque()  # what ends merges that were collected open, for the worker

    def run(self, steps: Steps[T]) -> Any:
        """Return the result of a call, or an awaitable of it, after waiting between its steps."""
        raise NotImplementedError

    # -- connecting ------------------------------------------------------------------------------------------------

    def connecting(self, timeout: float | None) -> Steps[None]:
        deadline = Deadline(self.clock, timeout)
        try:
            yield from self._open_streams(deadline)
            yield from self._log_in(deadline)
        except BaseException:
            self.end()
            raise

    def ready(self, deadline: Deadline) -> Steps[None]:
        """Reconnect if the session was lost. One caller reconnects while the others wait for it.

        Raises ConnectTimeout, or any error from connecting.
        """
        while self._is_connecting:
            if deadline.expired:
                raise self._connect_timeout("another call that connects", deadline)
            yield None
        self._check_open(Delivery.NONE, connects=self._reconnects)
        lost = self.lost
        if lost is None:
            return
        try:
            self._is_connecting, self.lost = True, None
            yield from self._open_streams(deadline)
            yield from self._log_in(deadline)
            lost = None
        except BaseException:
            self.session.restart()
            self._end_streams()
            raise
        finally:
            self._is_connecting = False
            self.lost = self.lost or lost

    def _open_streams(self, deadline: Deadline) -> Steps[None]:
        requests = with_control_defaults(self.channel)
        responses = with_control_defaults(self._response_channel)
        by_response_channel = ChannelUri.parse(responses).is_response
        if not by_response_channel:
            # The response channel keeps this session id, so the subscription receives only its own responses.
            operation = self.conductor.next_session_id(self._stream_id)
            session_id = yield from self.result_of(operation, deadline, "a session id from the driver")
            requests, responses = (with_values(each, {"session-id": session_id}) for each in (requests, responses))
        adding = self.conductor.add_subscription(Subscription, responses, self._response_stream_id)
        self._responses = yield from self.result_of(adding, deadline, "the response subscription")
        if by_response_channel:
            requests = with_values(requests, {"response-correlation-id": self._responses.registration_id})
        publishing = self.conductor.add_publication(ExclusivePublication, requests, self._stream_id)
        self._requests = yield from self.result_of(publishing, deadline, "the request publication")
        while not self._requests.is_connected:
            yield from self._pause(deadline, f"a connection to the archive at {self.channel}")
        if has_any_port(responses):
            while not (addresses := self._responses.local_addresses):
                yield from self._pause(deadline, "the port of the response channel")
            responses = with_bound_port(responses, addresses[0])
        self._responses_at = responses

    def _log_in(self, deadline: Deadline) -> Steps[None]:
        session = self.session
        session.connect(self._responses_at, self._response_stream_id)
        while not session.is_connected or session.outgoing:
            while session.outgoing and self._requests.offer(session.outgoing[0]) > 0:
                session.outgoing.popleft()
            self._check_open(Delivery.NONE)
            self.poll()
            try:
                session.advance()
            except BaseException:
                if session.outgoing:
                    self._requests.offer(session.outgoing.popleft())
                raise
            if not session.is_connected:
                yield from self._pause(deadline, session.step)

    def _pause(self, deadline: Deadline, step: str) -> Steps[None]:
        """Wait once. After the deadline, raises ConnectTimeout, or Timeout if the session is open."""
        self._check_open(Delivery.NONE)
        if deadline.expired:
            if self.session.is_connected:
                text = f"archive at {self.channel}: timed out after {deadline.timeout:g} s waiting for {step}"
                raise Timeout(text, timeout=deadline.timeout)
            raise self._connect_timeout(step, deadline)
        yield None

    def _connect_timeout(self, step: str, deadline: Deadline) -> ConnectTimeout:
        text = f"connect to the archive at {self.channel}: timed out after {deadline.timeout:g} s waiting for {step}"
        return ConnectTimeout(text, step=step, timeout=deadline.timeout or 0.0)

    def result_of(self, operation: Operation[T], deadline: Deadline, step: str) -> Steps[T]:
        """Return the result of a command. Cancel the command if the wait ends early."""
        try:
            while not operation.is_done:
                yield from self._pause(deadline, step)
            return operation.result()
        except BaseException:
            operation.cancel()
            raise

    # -- the end ---------------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether the client or its Aeron client is closed."""
        responses = self._responses
        return self.closed or bool(self._aeron.closed if responses is None else responses.closed)

    def _check_open(self, delivery: Delivery, request: Request | None = None, *, connects: bool = False) -> None:
        """Raise the error that ended the session, or the request's session, unless the caller ``connects`` again.

        ``delivery`` says how much of the request may have reached the archive.
        """
        if self.has_ended:
            self.conductor.raise_failure()
            error = ClosedError("the archive client is closed")
            error.delivery = delivery
            raise error
        is_old = request is not None and request.generation != self.session.generation
        if is_old or (self.lost is not None and not connects):
            raise ConnectionLost(self.loss, delivery=delivery)

    def _lose(self, why: str, delivery: Delivery) -> ConnectionLost:
        """Give up the session that the archive has ended. Return the error for the call that noticed."""
        hint = "; the next call connects again" if self._reconnects else ""
        self.loss = f"the control session of the archive at {self.channel} ended: {why}{hint}"
        self.lost = ConnectionLost(self.loss)
        self.session.restart()
        self._listing = None
        self._end_streams()
        return ConnectionLost(self.loss, delivery=delivery)

    def end(self) -> None:
        """Close the session and its streams. Calling it again does nothing."""
        if self.closed:
            return
        self.closed = True
        requests, responses = self._requests, self._responses
        if requests is not None and not requests.closed:
            if self.session.is_connected:
                with suppress(MainstemError):
                    requests.offer(self.session.closing())
            self.conductor.close_resource(requests)
        if responses is not None:
            self.conductor.close_resource(responses)

    def _end_streams(self) -> None:
        """Close the streams of a lost session."""
        streams = self._requests, self._responses
        self._requests = self._responses = None
        self._arrived.clear()
        self._had_image = False
        for each in streams:
            if each is not None:
                self.conductor.close_resource(each)

    def leave_to_parent(self) -> None:
        """Close the session in a forked child without touching the streams, which belong to the parent."""
        self.closed = True

    # -- messages --------------------------------------------------------------------------------------------------

    def do_work(self, _now_ns: int) -> int:
        """Read what the archive has sent. The worker calls this as its duty cycle."""
        if self.has_ended:
            raise AgentTerminated
        with suppress(MainstemError):
            while self.dropped:
                self.dropped.popleft()()
            return self.poll()
        return 0

    def on_close(self) -> None: ...

    def poll(self) -> int:
        """Route arrived messages, and return their number. Raises ConnectionLost if the archive ended the session."""
        arrived, responses = self._arrived, self._responses
        if responses is None:
            return 0
        arrived.extend(polled(responses.poll_bytes, MESSAGES_AT_ONCE))
        count = len(arrived)
        while arrived:
            place: Any
            place, item = self.session.route(arrived[0])
            # No function is called from here on, so no signal handler can run between the two statements.
            place += (item,)
            del arrived[0]
        if responses.is_connected:
            self._had_image = True
        elif self._had_image and not self.closed:
            if responses.closed:
                self._check_open(Delivery.UNKNOWN)
            raise self._lose("its response stream is gone", Delivery.UNKNOWN)
        return count

    def _send(self, publication: Any, request: Request, deadline: Deadline, what: str) -> Steps[None]:
        try:
            while (status := publication.offer(request.data)) < 0:
                self._check_open(Delivery.NONE, request)
                if status == OfferStatus.NOT_CONNECTED:
                    raise self._lose("it no longer reads requests", Delivery.NONE)
                if OfferStatus(status).is_final or deadline.expired:
                    raise offer_error_of(publication, status, what, f", for {deadline.timeout or 0:g} s")
                yield None
        except ValueError as error:
            if isinstance(error, MainstemError):
                raise
            raise ConfigurationError(f"{what}: {error}; use a larger term-length in the control channel") from None

    def _call(self, what: str, timeout: float | Deadline | None, name: str, /, **values: Any) -> Steps[Message]:
        """Send a request and return its first response, whatever its code."""
        deadline = timeout if isinstance(timeout, Deadline) else Deadline(self.clock, timeout)
        while True:
            yield from self.ready(deadline)
            needed, release = _VERSIONS.get(name, (0, ""))
            if self.session.version < needed:
                raise LocalProtocolError(f"{what}: the archive is too old; it needs Aeron {release} or later")
            request = self.session.open_request(name, **values)
            try:
                yield from self._send(self._requests, request, deadline, what)
                return (yield from self._response(request, deadline, what, name))
            except ConnectionLost as error:
                if not (error.may_retry and self._reconnects):
                    raise
            finally:
                self.session.forget(request)

    def _response(self, request: Request, deadline: Deadline, what: str, name: str) -> Steps[Message]:
        while not request.inbox:
            self._check_open(Delivery.UNKNOWN, request)
            self.poll()
            if request.inbox:
                break
            if deadline.expired:
                raise self._no_response(what, deadline, name)
            yield None
        return request.inbox[0]

    def _no_response(self, what: str, deadline: Deadline, name: str) -> Timeout:
        hint = f"; an archive before {_SINCE[name]} ignores this request" if name in _SINCE else ""
        text = f"{what}: the archive did not respond within {deadline.timeout:g} s{hint}"
        return Timeout(text, timeout=deadline.timeout)

    def _accepted(self, what: str, timeout: float | Deadline | None, name: str, /, **values: Any) -> Steps[Message]:
        """Send a request and return its response. Raises ArchiveError if the code is not OK."""
        message = yield from self._call(what, timeout, name, **values)
        if message.code != ResponseCode.OK:
            raise response_error(what, message)
        return message

    def asking(self, what: str, timeout: float | Deadline | None, name: str, /, **values: Any) -> Steps[int]:
        """Send a request and return the number in its response. Raises ArchiveError if the code is not OK."""
        message = yield from self._accepted(what, timeout, name, **values)
        result: int = message.relevant_id
        return result

    # -- recording -------------------------------------------------------------------------------------------------

    def start_recording(
        self,
        channel: str,
        stream_id: int,
        location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> Steps[int]:
        """Start recording a stream. Each publication that matches the channel, now or later, gets its own recording.

        Args:
            channel: The channel. A ``session-id`` limits it to one publication.
            stream_id: The stream id.
            location: ``LOCAL`` for publications of the archive's driver, ``REMOTE`` to subscribe over the network.
            auto_stop: Whether the archive stops when the first recording ends.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The id of the archive's recording subscription, for ``stop_recording_subscription``. The signal START has the id of
            the recording, once there is a publication.

        Raises:
            ArchiveError: The archive already records the stream, a limit is reached, or the disk is full.
        """
        return self.asking(
            f"start_recording of {channel} stream {stream_id}",
            timeout,
            "StartRecordingRequest2",
            stream_id=stream_id,
            source_location=int(SourceLocation(location)),
            auto_stop=int(auto_stop),
            channel=channel,
        )

    def extend_recording(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        location: SourceLocation = SourceLocation.LOCAL,
        *,
        auto_stop: bool = False,
        timeout: float | None = TIMEOUT,
    ) -> Steps[int]:
        """Continue a stopped recording. The publication must begin where the recording ends.

        ``extension_channel`` returns the channel for that publication. The signal EXTEND reports that recording has started. A
        publication that does not fit causes a late error, INVALID_EXTENSION.

        Args:
            recording_id: The recording.
            channel: The channel to record, as for ``start_recording``.
            stream_id: The stream id, which must be that of the recording.
            location: ``LOCAL`` for publications of the archive's driver, ``REMOTE`` to subscribe over the network.
            auto_stop: Whether the archive stops when the recording ends.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The id of the archive's recording subscription.

        Raises:
            ArchiveError: There is no such recording, it is active, or another reason listed at ``start_recording``.
        """
        return self.asking(
            f"extend_recording {recording_id} by {channel} stream {stream_id}",
            timeout,
            "ExtendRecordingRequest2",
            recording_id=recording_id,
            stream_id=stream_id,
            source_location=int(SourceLocation(location)),
            auto_stop=int(auto_stop),
            channel=channel,
        )

    def stop_recording(self, channel: str, stream_id: int, *, timeout: float | None = TIMEOUT) -> Steps[None]:
        """Stop all recordings of the subscription that ``start_recording`` created with this channel.

        Args:
            channel: The channel. Parameters that select no stream, such as ``term-length``, may be omitted.
            stream_id: The stream id.
            timeout: Seconds to wait; None waits forever.

        Raises:
            ArchiveError: No recording subscription has this channel and stream id.
        """
        what = f"stop_recording of {channel} stream {stream_id}"
        yield from self.asking(what, timeout, "StopRecordingRequest", stream_id=stream_id, channel=channel)

    def stop_recording_subscription(self, subscription_id: int, *, timeout: float | None = TIMEOUT) -> Steps[None]:
        """Stop all recordings of a recording subscription.

        Args:
            subscription_id: The id that ``start_recording`` returned.
            timeout: Seconds to wait; None waits forever.

        Raises:
            ArchiveError: There is no such recording subscription.
        """
        what = f"stop_recording_subscription {subscription_id}"
        yield from self.asking(what, timeout, "StopRecordingSubscriptionRequest", subscription_id=subscription_id)

    def stop_recording_by_identity(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[bool]:
        """Stop one recording without stopping other recordings of its subscription.

        The subscription ends with the last of its recordings, or at once if it was started with ``auto_stop``.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Returns:
            Whether it was active.

        Raises:
            ArchiveError: There is no such recording.
        """
        what = f"stop_recording_by_identity of recording {recording_id}"
        found = yield from self.asking(what, timeout, "StopRecordingByIdentityRequest", recording_id=recording_id)
        return bool(found)

    # -- listings --------------------------------------------------------------------------------------------------

    def list_recordings(
        self, from_recording_id: int = 0, *, count: int | None = None, timeout: float | None = TIMEOUT
    ) -> Listing:
        """Iterate over the archive's recordings in the order of their ids. Fetch them page by page.

        Args:
            from_recording_id: The first id.
            count: The maximum number of recordings; None for all.
            timeout: Seconds to wait for the next recording; None waits forever.

        Returns:
            An iterator. The stop position and stop time of an active recording are -1.

        Raises:
            ConfigurationError: ``count`` is not an integer >= 0.
        """
        return Listing(self, from_recording_id, count, None, timeout)

    def list_recordings_for_uri(
        self,
        channel: str,
        stream_id: int,
        from_recording_id: int = 0,
        *,
        count: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> Listing:
        """Iterate over the recordings of a stream in the order of their ids.

        Args:
            channel: Text contained in the recorded channel; empty for any channel.
            stream_id: The stream id.
            from_recording_id: The first id.
            count: The maximum number of recordings; None for all.
            timeout: Seconds to wait for the next recording; None waits forever.

        Returns:
            An iterator, as for ``list_recordings``.

        Raises:
            ConfigurationError: ``count`` is not an integer >= 0.
        """
        return Listing(self, from_recording_id, count, (channel, stream_id), timeout)

    def _listing_of(
        self, count: int, end: ResponseCode, what: str, timeout: float | None, name: str, /, **values: Any
    ) -> Steps[tuple[list[Message], bool]]:
        """Return the descriptors from a listing request, and whether there are no more."""
        deadline = Deadline(self.clock, timeout)
        yield from self.ready(deadline)
        # A session can have only one listing at a time. Wait for another thread's listing, and for the rest of a cancelled one.
        while (other := self._listing) is not None and not self._is_over(other):
            self._check_open(Delivery.NONE)
            self.poll()
            if deadline.expired:
                raise Timeout(f"{what}: another listing ran for {timeout:g} s", timeout=timeout)
            yield None
        if other is not None:
            self.session.forget(other)
        self._listing = request = self.session.open_request(name, **values)
        self._listed = count
        keeps = False
        try:
            yield from self._send(self._requests, request, deadline, what)
            keeps, seen = True, 0
            while not self._is_over(request):
                self._check_open(Delivery.UNKNOWN, request)
                self.poll()
                if len(request.inbox) > seen:
                    seen, deadline = len(request.inbox), Deadline(self.clock, timeout)
                elif deadline.expired:
                    keeps = False
                    raise self._no_response(what, deadline, name)
                if not self._is_over(request):
                    yield None
            keeps = False
        finally:
            if not keeps and self._listing is request:
                self._listing = None
                self.session.forget(request)
        messages = request.inbox
        if messages[-1].name != "ControlResponse":
            return messages, False
        if messages[-1].code != end:
            raise response_error(what, messages[-1])
        return messages[:-1], True

    def _is_over(self, request: Request) -> bool:
        inbox = request.inbox
        return bool(inbox) and (len(inbox) >= self._listed or inbox[-1].name == "ControlResponse")

    def list_recording(
        self, recording_id: int, *, timeout: float | None = TIMEOUT
    ) -> Steps[RecordingDescriptor | None]:
        """Describe one recording.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The recording; None if there is no such recording.
        """
        what = f"list_recording {recording_id}"
        name, end = "ListRecordingRequest", ResponseCode.RECORDING_UNKNOWN
        found, _ = yield from self._listing_of(1, end, what, timeout, name, recording_id=recording_id)
        return descriptor_of(found[0]) if found else None

    def list_recording_subscriptions(
        self, channel: str = "", stream_id: int | None = None, *, timeout: float | None = TIMEOUT
    ) -> Steps[list[RecordingSubscription]]:
        """List what the archive is recording, or waiting to record.

        Args:
            channel: Text contained in the channel; empty for any channel.
            stream_id: The stream id; None for any.
            timeout: Seconds to wait for the next subscription; None waits forever.

        Returns:
            The recording subscriptions, in no particular order.
        """
        found, _ = yield from self._listing_of(
            MAX_COUNT,
            ResponseCode.SUBSCRIPTION_UNKNOWN,
            "list_recording_subscriptions",
            timeout,
            "ListRecordingSubscriptionsRequest",
            pseudo_index=0,
            subscription_count=MAX_COUNT,
            apply_stream_id=int(stream_id is not None),
            stream_id=stream_id or 0,
            channel=channel,
        )
        return [
            RecordingSubscription(
                subscription_id=each.subscription_id, stream_id=each.stream_id, channel=each.stripped_channel
            )
            for each in found
        ]

    def find_last_matching_recording(
        self,
        channel: str,
        stream_id: int,
        session_id: int,
        *,
        min_recording_id: int = 0,
        timeout: float | None = TIMEOUT,
    ) -> Steps[int | None]:
        """Find the newest recording of a publication.

        Args:
            channel: Text contained in the recorded channel; empty for any channel.
            stream_id: The stream id.
            session_id: The publication's session id.
            min_recording_id: The lowest recording id to consider.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The recording's id; None if there is none.
        """
        found = yield from self.asking(
            f"find_last_matching_recording of stream {stream_id} session {session_id}",
            timeout,
            "FindLastMatchingRecordingRequest",
            min_recording_id=min_recording_id,
            session_id=session_id,
            stream_id=stream_id,
            channel=channel,
        )
        return None if found == NULL else found

    # -- positions -------------------------------------------------------------------------------------------------

    def start_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[int]:
        """Return the position of a recording's first byte.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Raises:
            ArchiveError: There is no such recording.
        """
        what = f"start_position of recording {recording_id}"
        return self.asking(what, timeout, "StartPositionRequest", recording_id=recording_id)

    def recording_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[int | None]:
        """Return the current position of an active recording.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The position; None if the recording is not active.

        Raises:
            ArchiveError: There is no such recording.
        """
        what = f"recording_position of recording {recording_id}"
        found = yield from self.asking(what, timeout, "RecordingPositionRequest", recording_id=recording_id)
        return None if found == NULL else found

    def stop_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[int | None]:
        """Return the position at which a recording ended.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The position; None if the recording is active.

        Raises:
            ArchiveError: There is no such recording.
        """
        what = f"stop_position of recording {recording_id}"
        found = yield from self.asking(what, timeout, "StopPositionRequest", recording_id=recording_id)
        return None if found == NULL else found

    def max_recorded_position(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[int]:
        """Return the current position of a recording, whether it is active or stopped.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Raises:
            ArchiveError: There is no such recording.
        """
        what = f"max_recorded_position of recording {recording_id}"
        names = ["MaxRecordedPositionRequest"]
        deadline = Deadline(self.clock, timeout)
        yield from self.ready(deadline)
        if self.session.version < KNOWS_ARCHIVE_ID:
            names = ["RecordingPositionRequest", "StopPositionRequest", "RecordingPositionRequest"]
        for name in names:
            found = yield from self.asking(what, deadline, name, recording_id=recording_id)
            if found != NULL:
                return found
        raise RemoteProtocolError(f"{what}: the archive has none", rule="position")

    # -- changes to recordings -------------------------------------------------------------------------------------

    def truncate_recording(self, recording_id: int, position: int, *, timeout: float | None = TIMEOUT) -> Steps[int]:
        """Truncate a recording. Its replays are stopped, and the segments after ``position`` are deleted.

        Args:
            recording_id: The recording.
            position: The new end, between the start and the stop position of the recording, at a frame boundary.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording, it is active, or the position is invalid.
        """
        what, name = f"truncate_recording {recording_id}", "TruncateRecordingRequest"
        return self.asking(what, timeout, name, recording_id=recording_id, position=position)

    def purge_recording(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[int]:
        """Delete a recording with all of its segments. Its id is not reused.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording, or it is active or being replayed.
            LocalProtocolError: The archive is too old.
        """
        what = f"purge_recording {recording_id}"
        return self.asking(what, timeout, "PurgeRecordingRequest", recording_id=recording_id)

    def detach_segments(
        self, recording_id: int, new_start_position: int, *, timeout: float | None = TIMEOUT
    ) -> Steps[None]:
        """Make a recording start later. The files of earlier segments stay until they are deleted or attached again.

        Args:
            recording_id: The recording.
            new_start_position: The start of a segment: a multiple of the segment length from the beginning of the first term.
            timeout: Seconds to wait; None waits forever.

        Raises:
            ArchiveError: There is no such recording, or the position is invalid.
        """
        what, name = f"detach_segments of recording {recording_id}", "DetachSegmentsRequest"
        values = {"recording_id": recording_id, "new_start_position": new_start_position}
        yield from self.asking(what, timeout, name, **values)

    def delete_detached_segments(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[int]:
        """Delete the files of detached segments.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording.
        """
        what = f"delete_detached_segments of recording {recording_id}"
        return self.asking(what, timeout, "DeleteDetachedSegmentsRequest", recording_id=recording_id)

    def purge_segments(
        self, recording_id: int, new_start_position: int, *, timeout: float | None = TIMEOUT
    ) -> Steps[int]:
        """Make a recording start later, and delete the earlier segments. This limits the size of an active recording.

        Args:
            recording_id: The recording.
            new_start_position: The start of a segment: a multiple of the segment length from the beginning of the first term.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The number of files to delete. The archive sends the signal DELETE when they are gone.

        Raises:
            ArchiveError: There is no such recording, or the position is invalid.
        """
        what, name = f"purge_segments of recording {recording_id}", "PurgeSegmentsRequest"
        return self.asking(what, timeout, name, recording_id=recording_id, new_start_position=new_start_position)

    def attach_segments(self, recording_id: int, *, timeout: float | None = TIMEOUT) -> Steps[int]:
        """Attach the segments that were detached from a recording, if their files still exist.

        Args:
            recording_id: The recording.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The number of segments.

        Raises:
            ArchiveError: There is no such recording, or a file is not one of its segments.
        """
        what = f"attach_segments of recording {recording_id}"
        return self.asking(what, timeout, "AttachSegmentsRequest", recording_id=recording_id)

    def migrate_segments(
        self, src_recording_id: int, dst_recording_id: int, *, timeout: float | None = TIMEOUT
    ) -> Steps[int]:
        """Move all segments of a stopped recording to one that it continues or that continues it.

        Args:
            src_recording_id: The recording that loses its segments.
            dst_recording_id: The recording that receives them, at its beginning or its end.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The number of segments.

        Raises:
            ArchiveError: There is no such recording, or the two recordings are not compatible or contiguous.
        """
        what = f"migrate_segments of recording {src_recording_id} to {dst_recording_id}"
        values = {"src_recording_id": src_recording_id, "dst_recording_id": dst_recording_id}
        return self.asking(what, timeout, "MigrateSegmentsRequest", **values)

    def update_channel(self, recording_id: int, channel: str, *, timeout: float | None = TIMEOUT) -> Steps[None]:
        """Change the channel under which a recording is listed.

        Args:
            recording_id: The recording.
            channel: The new channel.
            timeout: Seconds to wait; None waits forever.

        Raises:
            ArchiveError: There is no such recording.
        """
        what = f"update_channel of recording {recording_id}"
        yield from self.asking(what, timeout, "UpdateChannelRequest", recording_id=recording_id, channel=channel)

    # -- replication -----------------------------------------------------------------------------------------------

    def replicate(
        self,
        src_recording_id: int,
        src_control_channel: str,
        *,
        src_control_stream_id: int = CONTROL_STREAM_ID,
        dst_recording_id: int | None = None,
        stop_position: int | None = None,
        live_destination: str = "",
        replication_channel: str = "",
        channel_tag_id: int | None = None,
        subscription_tag_id: int | None = None,
        file_io_max_length: int | None = None,
        replication_session_id: int | None = None,
        credentials: bytes = b"",
        src_response_channel: str = "",
        timeout: float | None = TIMEOUT,
    ) -> Steps[int]:
        """Copy a recording of another archive into this one.

        The archive connects to the other archive and requests a replay of the recording. Signals and errors of the replication are
        events with the replication id as their correlation id. The last one is the signal REPLICATE_END.

        Args:
            src_recording_id: The recording in the other archive.
            src_control_channel: The control channel of the other archive, as this archive reaches it.
            src_control_stream_id: The control stream of the other archive.
            dst_recording_id: A recording of this archive to continue, or an empty one to fill; None creates a new one.
            stop_position: The position to stop at; None for the end of the recording, which may be active.
            live_destination: A channel of the live stream. Once the copy has caught up, this archive records the live stream
                directly.
            replication_channel: The channel for the replay; empty for the one that this archive is configured with.
            channel_tag_id: The channel tag of the archive's subscription, for an application that follows the replication.
            subscription_tag_id: The tag of the subscription itself.
            file_io_max_length: The maximum number of bytes that the other archive reads at a time.
            replication_session_id: The session id of the replay.
            credentials: The credentials for the other archive's authenticator, which must not send a challenge.
            src_response_channel: The channel for the other archive's responses; empty for the one that this archive is configured
                with.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The replication id, for ``stop_replication``.

        Raises:
            ArchiveError: The archive refused. Later errors are events.
            LocalProtocolError: The archive is too old for an option.
            ConfigurationError: ``live_destination`` is combined with ``replication_session_id``.

        Example:
            >>> replication_id = client.replicate(7, "aeron:udp?endpoint=tides.example:8010")
            >>> for event in client.events(timeout=60.0):
            ...     if isinstance(event, Signal) and event.signal is RecordingSignal.REPLICATE_END:
            ...         break
        """
        if live_destination and replication_session_id is not None:
            raise ConfigurationError("live_destination: must not be combined with replication_session_id")
        what = f"replicate recording {src_recording_id} of {src_control_channel}"
        values: dict[str, Any] = {
            "src_recording_id": src_recording_id,
            "src_control_channel": src_control_channel,
            "src_control_stream_id": src_control_stream_id,
            "dst_recording_id": dst_recording_id,
            "live_destination": live_destination,
            "channel_tag_id": channel_tag_id,
            "subscription_tag_id": subscription_tag_id,
        }
        newer: dict[str, Any] = {
            "stop_position": stop_position,
            "file_io_max_length": file_io_max_length,
            "replication_session_id": replication_session_id,
            "replication_channel": replication_channel,
            "encoded_credentials": credentials,
            "src_response_channel": src_response_channel,
        }
        deadline = Deadline(self.clock, timeout)
        yield from self.ready(deadline)
        name = "TaggedReplicateRequest"
        if self.session.version >= _VERSIONS["ReplicateRequest2"][0] or any(
            value not in (None, "", b"") for value in newer.values()
        ):
            name, values = "ReplicateRequest2", values | newer
        values = {key: NULL if value is None else value for key, value in values.items()}
        return (yield from self.asking(what, deadline, name, **values))

    def stop_replication(self, replication_id: int, *, timeout: float | None = TIMEOUT) -> Steps[None]:
        """Stop a replication. The destination keeps what it has, and can be continued by another replication.

        Args:
            replication_id: The id that ``replicate`` returned.
            timeout: Seconds to wait; None waits forever.

        Raises:
            ArchiveError: There is no such replication.
        """
        what = f"stop_replication {replication_id}"
        yield from self.asking(what, timeout, "StopReplicationRequest", replication_id=replication_id)

    # -- replay ----------------------------------------------------------------------------------------------------

    def start_replay(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int | None = None,
        length: int | None = None,
        follow: bool = True,
        limit_counter_id: int | None = None,
        file_io_max_length: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> Steps[int]:
        """Start a replay for a subscription of your own. The archive ends it if nobody subscribes within 5 s.

        Args:
            recording_id: The recording.
            channel: The channel to replay to.
            stream_id: The stream id of the replay.
            position: The position to begin at; None for the start of the recording.
            length: How many bytes to replay; None for all.
            follow: Whether a replay without ``length`` follows an active recording until the recording stops.
            limit_counter_id: A counter of the archive's driver that the replay never overtakes.
            file_io_max_length: The maximum number of bytes that the archive reads at a time.
            timeout: Seconds to wait; None waits forever.

        Returns:
            The replay session id, for ``stop_replay``. Its low 32 bits are the session id of the replay's publication.

        Raises:
            ArchiveError: There is no such recording, the position is outside it, or a limit is reached.
            ConfigurationError: ``length`` is not an integer >= 1, or is combined with ``follow=False``.
        """
        part = position, length, follow, limit_counter_id, file_io_max_length
        options = ReplayOptions(recording_id, channel, stream_id, *part)
        return (yield from self.request_replay(options, timeout)).replay_id

    def replay(
        self,
        recording_id: int,
        channel: str,
        stream_id: int,
        *,
        position: int | None = None,
        length: int | None = None,
        follow: bool = True,
        limit_counter_id: int | None = None,
        file_io_max_length: int | None = None,
        timeout: float | None = TIMEOUT,
    ) -> Steps[S]:
        """Start a replay and subscribe to it. Closing the subscription ends the replay.

        Messages have the same positions as in the recording.

        Args:
            recording_id: The recording.
            channel: The channel to replay to, such as ``aeron:ipc``, or ``aeron:udp?endpoint=localhost:0`` for a free port.
            stream_id: The stream id of the replay.
            position: The position to begin at; None for the start of the recording.
            length: How many bytes to replay; None for all.
            follow: Whether a replay without ``length`` follows an active recording until the recording stops.
            limit_counter_id: A counter of the archive's driver that the replay never overtakes.
            file_io_max_length: The maximum number of bytes that the archive reads at a time.
            timeout: Seconds to wait for the archive, and for the driver; None waits forever.

        Returns:
            The subscription. Iterating over it ends when everything that was requested has arrived, or when this client stops
            the replay. If the replay ends earlier, the iterator raises ConnectionLost: the archive, its session or the stream was
            lost, or somebody else stopped the replay or truncated the recording. The error's ``end`` is the position where the
            replay was to end, if that is known, and another replay can continue at its ``position``. If the archive reported an
            error, the iterator raises that ArchiveError. ``poll`` and its variants do not report these errors.

        Raises:
            ArchiveError: There is no such recording, the position is outside it, or a limit is reached.
            RegistrationError: The driver refused the channel.
            ChannelUriError: The channel is malformed.
            ConfigurationError: ``length`` is not an integer >= 1, or is combined with ``follow=False``.

        Example:
            >>> with client.replay(7, "aeron:ipc", 1002, follow=False) as subscription:
            ...     for message in subscription.messages(timeout=5.0):
            ...         print(message)
        """
        part = position, length, follow, limit_counter_id, file_io_max_length
        options = ReplayOptions(recording_id, channel, stream_id, *part)
        deadline = Deadline(self.clock, timeout)
        promise = yield from self._promise(options, deadline)
        subscription: Any
        subscription, started = yield from self.unchecked_replay(options, deadline)
        subscription._feed = ReplayFeed(self, started, options, promise)
        # The subscription keeps this client open, so the Aeron client must not keep the subscription.
        self.conductor.let_go(subscription)
        typed: S = subscription
        return typed

    def stop_replay(self, replay_session_id: int, *, timeout: float | None = TIMEOUT) -> Steps[None]:
        """Stop a replay. Do nothing if it has already ended.

        Args:
            replay_session_id: The id that ``start_replay`` returned.
            timeout: Seconds to wait; None waits forever.
        """
        what, feeds = f"stop_replay {replay_session_id}", self._feeds(replay_id=replay_session_id)
        yield from self._stopping(feeds, what, timeout, "StopReplayRequest", replay_session_id=replay_session_id)

    def stop_all_replays(self, recording_id: int | None = None, *, timeout: float | None = TIMEOUT) -> Steps[None]:
        """Stop all replays of a recording, including those of other clients.

        Args:
            recording_id: The recording; None for every recording.
            timeout: Seconds to wait; None waits forever.
        """
        what = "stop_all_replays" if recording_id is None else f"stop_all_replays of recording {recording_id}"
        feeds = self._feeds(recording_id=recording_id)
        recording_id = NULL if recording_id is None else recording_id
        yield from self._stopping(feeds, what, timeout, "StopAllReplaysRequest", recording_id=recording_id)

    def _feeds(self, *, replay_id: int | None = None, recording_id: int | None = None) -> list[ReplayFeed]:
        """Return the feeds of this client's replays: those of a replay session id, of a recording, or all."""
        found: list[ReplayFeed] = list(self.session.replays.values())
        return [
            each for each in found if replay_id in (None, each.replay_id) and recording_id in (None, each.recording_id)
        ]

    def _stopping(
        self, feeds: list[ReplayFeed], what: str, timeout: float | None, name: str, /, **values: Any
    ) -> Steps[None]:
        """Stop this client's replays. They have ended in order, even if their readers notice before the archive responds."""
        before = [each for each in feeds if not each.is_stopped]
        for each in before:
            each.is_stopped = True
        try:
            yield from self.asking(what, timeout, name, **values)
        except BaseException as error:
            if isinstance(error, ArchiveError) or getattr(error, "may_retry", False):
                for each in before:
                    each.is_stopped = False
            raise

    def request_replay(self, options: ReplayOptions, timeout: float | Deadline | None) -> Steps[StartedReplay]:
        if ChannelUri.parse(options.channel).is_response:
            raise ConfigurationError(
                f"start_replay to {options.channel}: a response channel needs its subscription; use replay"
            )
        message = yield from self._accepted(options.what, timeout, options.request, **options.values)
        return StartedReplay(message.relevant_id, message.correlation_id)

    def _promise(self, options: ReplayOptions, deadline: Deadline) -> Steps[Promise]:
        """Ask where the recording ends."""
        recording_id = options.recording_id
        # The archive's refusal means that the end is unknown. The replay request may be refused too, with its own error.
        with suppress(ArchiveError):
            end = yield from self.asking(options.what, deadline, "StopPositionRequest", recording_id=recording_id)
            if end != NULL:
                return Promise(end, is_final=True)
            end = yield from self.max_recorded_position(recording_id, timeout=deadline.left)
            return Promise(end, is_final=not options.follows)
        return Promise(0, is_final=False)

    def settled_stop_position(self, recording_id: int) -> Steps[int | None]:
        """Return the stop position of a recording whose replay has ended in order; None if the recording does not stop.

        Replays can end a little earlier than the archive notes that the recording has stopped.
        """
        settled = Deadline(self.clock, SETTLING_S)
        while (found := (yield from self.stop_position(recording_id))) is None and not settled.expired:
            pause = Deadline(self.clock, ASKING_S)
            while not pause.expired:
                yield None
        return found

    def unchecked_replay(self, options: ReplayOptions, deadline: Deadline) -> Steps[tuple[S, StartedReplay]]:
        """Start a replay and subscribe to it. Its iterators do not notice if it ends early."""
        if ChannelUri.parse(options.channel).is_response:
            return self._replay_over_response_channel(options, deadline)
        if has_any_port(options.channel):
            return self._replay_to_any_port(options, deadline)
        return self._replay_to(options, deadline)

    def _replay_to(self, options: ReplayOptions, deadline: Deadline) -> Steps[tuple[S, StartedReplay]]:
        started = yield from self.request_replay(options, deadline)
        try:
            joined = with_values(options.channel, {"session-id": replay_session(started.replay_id)})
            return (yield from self._subscribe(joined, options.stream_id, deadline)), started
        except BaseException:
            self.send_once("StopReplayRequest", replay_session_id=started.replay_id)
            raise

    def _replay_to_any_port(self, options: ReplayOptions, deadline: Deadline) -> Steps[tuple[S, StartedReplay]]:
        """Subscribe before starting the replay, to learn the port. The replay uses the session id in its channel."""
        yield from self.ready(deadline)
        channel = options.channel
        if "session-id" not in channel:
            operation = self.conductor.next_session_id(options.stream_id)
            session_id = yield from self.result_of(operation, deadline, "a session id from the driver")
            channel = with_values(channel, {"session-id": session_id})
        subscription: Any = yield from self._subscribe(channel, options.stream_id, deadline)
        try:
            while not (addresses := subscription.local_addresses):
                yield from self._pause(deadline, "the port of the replay channel")
            bound = replace(options, channel=with_bound_port(channel, addresses[0]))
            return subscription, (yield from self.request_replay(bound, deadline))
        except BaseException:
            self.conductor.close_resource(subscription)
            raise

    def _replay_over_response_channel(
        self, options: ReplayOptions, deadline: Deadline
    ) -> Steps[tuple[S, StartedReplay]]:
        """Subscribe before starting the replay, so that the archive can join the replay to the subscription."""
        yield from self.ready(deadline)
        subscription: Any = yield from self._subscribe(options.channel, options.stream_id, deadline)
        try:
            registration_id = subscription.registration_id
            return subscription, (yield from self.start_replay_by_response(registration_id, options, deadline))
        except BaseException:
            self.conductor.close_resource(subscription)
            raise

    def start_replay_by_response(
        self, registration_id: int, options: ReplayOptions, deadline: Deadline
    ) -> Steps[StartedReplay]:
        """Request a replay over a publication tied to the subscription. A token authorizes it on behalf of this session."""
        what, recording_id = options.what, options.recording_id
        token = yield from self.asking(what, deadline, "ReplayTokenRequest", recording_id=recording_id)
        values = {"response-correlation-id": registration_id, "ssc": "false"}
        requests = with_control_defaults(self.channel)
        requests = with_values(requests, values, without=("session-id", *POSITION_KEYS))
        adding = self.conductor.add_publication(ExclusivePublication, requests, self._stream_id)
        publication = yield from self.result_of(adding, deadline, "the publication that asks for the replay")
        try:
            while not publication.is_connected or publication.available_window <= 0:
                yield from self._pause(deadline, "a connection for the replay's request")
            request = self.session.open_request(options.request, **options.values | {"replay_token": token})
            try:
                yield from self._send(publication, request, deadline, what)
                message = yield from self._response(request, deadline, what, options.request)
            finally:
                self.session.forget(request)
            if message.code != ResponseCode.OK:
                raise response_error(what, message)
            return StartedReplay(message.relevant_id, message.correlation_id)
        finally:
            self.conductor.close_resource(publication)

    def _subscribe(self, channel: str, stream_id: int, deadline: Deadline) -> Steps[S]:
        operation: Operation[S] = self.conductor.add_subscription(self.subscription_kind, channel, stream_id)
        return (yield from self.result_of(operation, deadline, "the subscription to the replay"))

    def send_once(self, name: str, **values: Any) -> None:
        """Try once to send a request whose response does not matter."""
        if not self.closed and self.session.is_connected:
            request = self.session.open_request(name, **values)
            self.session.forget(request)
            self._requests.offer(request.data)


class ReplayFeed:
    """Tells a complete replay from one that was cut short, because both can end the replay's stream in the same way.

    Theory of operation. A replay is complete in two cases: its reader has reached the position that was promised when it began
    (the stop position, the given length, or with ``follow=False`` the recorded position), or the archive ended the stream in
    order and says that the recording stopped there. A replay of an active recording can only end in the second way; until then,
    the recorded position at its beginning is a lower bound. The archive revokes the stream of a replay that it stops early. If an
    archive is killed, its driver ends the stream as if the replay were complete, so the feed asks the archive before it believes
    the stream. A replay that this client stops has ended in order wherever it is.

    Attributes:
        error: The late error of the replay, if the archive sent one.
        is_stopped: Whether this client has stopped the replay.
    """

    def __init__(self, calls: Calls[Any], started: StartedReplay, options: ReplayOptions, promise: Promise) -> None:
        self.image: Any = None
        self.error: ArchiveError | None = None
        self.is_stopped = False
        self.replay_id = started.replay_id
        self.recording_id = options.recording_id
        self._calls = calls
        self._client = calls._client()  # a subscription keeps its client open
        self._generation = calls.session.generation
        self._what = options.what
        self._length, self._is_bounded = options.length, options.limit_counter_id is not None
        self._promise = promise
        self._arrival = Deadline(calls.clock, ARRIVAL_S)
        calls.session.replays[started.correlation_id] = self
        for event in list(calls.session.events):
            if isinstance(event, ArchiveError) and event.correlation_id == started.correlation_id:
                self.error = event

    @property
    def is_lost(self) -> bool:
        """Whether no image will arrive: the session was lost, or the archive has ended the replay without one."""
        return self._is_session_lost or self.error is not None or self.is_stopped or self._arrival.expired

    @property
    def _is_session_lost(self) -> bool:
        session = self._calls.session
        return not self._calls.closed and (session.generation != self._generation or not session.is_connected)

    def check(self, subscription: Any) -> Any:
        """Raise an error unless the replay is complete. Return a coroutine in asyncio."""
        return self._calls.run(self._checking(subscription))

    def _checking(self, subscription: Any) -> Steps[None]:
        image = next(iter(subscription.images), self.image)
        position = None if image is None else image.position
        end = self._end_of(image)
        if self.is_stopped or (end is not None and position is not None and position >= end):
            return
        why = "its stream was lost"
        if image is None or image.is_end_of_stream or image.is_publication_revoked:
            why = yield from self._loss()
        if self.error is not None:
            code, correlation_id = self.error.code, self.error.correlation_id
            text = f"{self._what} ended {_reached(position)}: {self.error}"
            raise ArchiveError(text, code=code, correlation_id=correlation_id)
        if not why and (image is None or image.is_publication_revoked):
            why = "the archive stopped it" if image is not None else f"its stream did not arrive within {ARRIVAL_S:g} s"
        elif not why and not self._is_bounded:
            try:
                end = yield from self._final_position(end)
            except _UNANSWERED as error:
                raise cut_short(self._what, position, end, str(error)) from error
            if position is not None and (end is None or position >= end):
                return
            why = "its recording is still active" if end == NO_END else "the archive ended it there"
        if why:
            raise cut_short(self._what, position, None if end == NO_END else end, why)

    def _end_of(self, image: Any) -> int | None:
        """Return the position where the replay was to end; None if only the archive will know."""
        end, is_final = self._promise
        ends = [end] if is_final else []
        if self._length is not None and image is not None:
            ends.append(image.join_position + self._length)
        return min(ends, default=None)

    def _final_position(self, end: int | None) -> Steps[int | None]:
        """Return the position where the replay should have ended, now that it has; None if the archive does not tell.

        ``NO_END`` stands for a recording that has not stopped.
        """
        if self._promise.is_final:
            return end
        try:
            stopped = yield from self._calls.settled_stop_position(self.recording_id)
        except ArchiveError as error:
            if error.code is ArchiveErrorCode.UNAUTHORISED_ACTION:
                return end
            raise
        return NO_END if stopped is None else max(stopped, self._promise.end)

    def _loss(self) -> Steps[str]:
        """Send a request to find out whether the archive still serves the session. Return why not; empty if it does."""
        calls, name = self._calls, "StartPositionRequest"
        if calls.closed:
            return "the archive client was closed, so it is unknown whether the archive still serves the replay"
        if self._is_session_lost:
            return calls.loss
        deadline = Deadline(calls.clock, TIMEOUT)
        request = calls.session.open_request(name, recording_id=self.recording_id)
        try:
            yield from calls._send(calls._requests, request, deadline, self._what)
            yield from calls._response(request, deadline, self._what, name)
        except _UNANSWERED as error:
            return str(error)
        finally:
            calls.session.forget(request)
        return ""


# Without a usable response of the archive, it is unknown whether a replay is complete.
_UNANSWERED = (ArchiveError, ConnectionLost, ClosedError, OfferError, Timeout)


def cut_short(what: str, position: int | None, end: int | None, why: str) -> ConnectionLost:
    """Return the error for a replay that ended before its end; ``end`` is None if that is not known."""
    before = "its end" if end is None else f"position {end}"
    again = "" if position is None else f"; replay again from position={position}"
    text = f"{what} ended {_reached(position)}, before {before}: {why}{again}"
    return ConnectionLost(text, position=position, end=end)


def _reached(position: int | None) -> str:
    return "before it began" if position is None else f"at position {position}"


class Events:
    """One iterator's view of a session's events. It ends with that session, because events between two sessions are unknown."""

    def __init__(self, calls: Calls[Any]) -> None:
        self._calls = calls
        session = calls.session
        self._generation = session.generation if session.is_connected else None

    def wait(self, timeout: float | None) -> Steps[bool]:
        """Wait for an event. Return False once the client is closed."""
        calls, events = self._calls, self._calls.session.events
        deadline = Deadline(calls.clock, timeout)
        while not events:
            if calls.closed:
                return False
            if self._generation is None:
                yield from calls.ready(deadline)
                self._generation = calls.session.generation
            calls._check_open(Delivery.UNKNOWN)
            if self._generation != calls.session.generation:
                raise ConnectionLost(calls.loss)
            calls.poll()
            if events:
                break
            if deadline.expired:
                raise Timeout(f"no event of the archive at {calls.channel} within {timeout:g} s", timeout=timeout)
            yield None
        return True


class Listing:
    """The recordings in a listing, one page at a time. Each page is one request."""

    def __init__(
        self, calls: Calls[Any], first_id: int, count: int | None, stream: tuple[str, int] | None, timeout: float | None
    ) -> None:
        check_int({"from_recording_id": first_id}, min_value=0)
        if count is not None:
            check_int({"count": count}, min_value=0)
        self._calls = calls
        self._next_id = first_id
        self._left = count
        self._stream = stream
        self._timeout = timeout
        self.is_over = count == 0

    def next_page(self) -> Steps[list[RecordingDescriptor]]:
        """Return the recordings of the next page; empty at the end."""
        count = PAGE if self._left is None else min(PAGE, self._left)
        values: dict[str, Any] = {"from_recording_id": self._next_id, "record_count": count}
        what, name = "list_recordings", "ListRecordingsRequest"
        if self._stream is not None:
            what, name = "list_recordings_for_uri", "ListRecordingsForUriRequest"
            values |= {"channel": self._stream[0], "stream_id": self._stream[1]}
        end = ResponseCode.RECORDING_UNKNOWN
        found, self.is_over = yield from self._calls._listing_of(count, end, what, self._timeout, name, **values)
        if found:
            self._next_id = found[-1].recording_id + 1
        if self._left is not None:
            self._left -= len(found)
            self.is_over = self.is_over or self._left == 0
        return [descriptor_of(message) for message in found]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Which part of a recording to replay, where to, and how."""

    recording_id: int
    channel: str
    stream_id: int
    position: int | None = None
    length: int | None = None
    follows: bool = True
    limit_counter_id: int | None = None
    file_io_max_length: int | None = None

    def __post_init__(self) -> None:
        if self.length is not None:
            check_int({"length": self.length}, min_value=1)
            if not self.follows:
                raise ConfigurationError("follow=False: must not be combined with a length, which says where to end")

    @property
    def what(self) -> str:
        return f"replay of recording {self.recording_id}"

    @property
    def request(self) -> str:
        """The name of the request."""
        return "ReplayRequest" if self.limit_counter_id is None else "BoundedReplayRequest"

    @property
    def values(self) -> dict[str, Any]:
        """The values of the request."""
        return {
            "recording_id": self.recording_id,
            "position": NULL if self.position is None else self.position,
            "length": (_AND_FOLLOW if self.follows else _AND_STOP) if self.length is None else self.length,
            "limit_counter_id": self.limit_counter_id,
            "replay_channel": self.channel,
            "replay_stream_id": self.stream_id,
            "file_io_max_length": NULL if self.file_io_max_length is None else self.file_io_max_length,
            "replay_token": NULL,
        }


def replay_session(replay_id: int) -> int:
    """Return the session id of a replay's publication: the low 32 bits of the replay session id."""
    return wrap_i32(replay_id)


def descriptor_of(message: Message) -> RecordingDescriptor:
    """Return the recording that a message describes. The message's first two ids belong to the listing."""
    values = {name: value for name, value in message.values.items() if name not in _IDS_OF_LISTING}
    return RecordingDescriptor(**values)


_IDS_OF_LISTING = ("control_session_id", "correlation_id")


class ClientBase(Generic[S]):
    """The part of a client that never blocks."""

    _calls: Calls[S]

    def __init__(self, calls: Calls[S]) -> None:
        self._calls = calls
        calls._client = weakref.ref(self)

    @property
    def archive_id(self) -> int:
        """The archive's id; -1 for archives before 1.44, which have none."""
        return self._calls.session.archive_id

    @property
    def control_session_id(self) -> int:
        """The archive's id for this session."""
        return self._calls.session.control_session_id

    @property
    def protocol_version(self) -> tuple[int, int, int]:
        """The version of the archive's control protocol, such as (1, 12, 0)."""
        version = self._calls.session.version
        return version >> 16, version >> 8 & 0xFF, version & 0xFF

    @property
    def connected(self) -> bool:
        """Whether the session is open. If it is not, and the client is not closed, the next call reconnects."""
        return not self.closed and self._calls.session.is_connected

    @property
    def closed(self) -> bool:
        """Whether the client has ended, by ``close`` or with its Aeron client."""
        return self._calls.has_ended

    @property
    def error(self) -> Exception | None:
        """The error that ended the session: a ConnectionLost, DriverTimeout or ClientTimeout. None if there is none."""
        return self._calls.conductor.failure or self._calls.lost

    def stats(self) -> ClientStats:
        """Return the client's statistics."""
        session = self._calls.session
        return ClientStats(
            pending=session.pending,
            events=len(session.events),
            dropped_events=session.dropped_events,
            refused=dict(session.reader.refused),
        )

    def __repr__(self) -> str:
        state = ", closed" if self.closed else "" if self.connected else ", lost"
        return f"<archive.Client of {self._calls.channel} session {self.control_session_id}{state}>"

    def __del__(self) -> None:
        calls = getattr(self, "_calls", None)
        if calls is not None and not calls.closed:
            try:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            finally:
                self._abandon()

    def _abandon(self) -> None:
        """Close everything without waiting."""
        raise NotImplementedError
