"""The part that publications, subscriptions and counters share: registration, channel status, and closing."""

from __future__ import annotations

import warnings
from collections import deque
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from mainstem._internal.clock import timeout_of
from mainstem.aeron import channel as channels
from mainstem.aeron.client.operation import wait_or_cancel
from mainstem.aeron.counters import ChannelStatus, find_local_addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from mainstem.aeron.client.operation import Conductor, Operation

NO_CHANNEL_STATUS = -1  # an IPC channel has no endpoint and therefore no status counter


class StreamEnd:
    """A check whether all streams of an iterator have ended.

    The driver may have announced the image of a new publisher that the conductor has not handled. So an end counts only once the
    conductor has handled the responses that existed when the end was first seen.
    """

    def __init__(self, conductor: Conductor, has_ended: Callable[[], bool]) -> None:
        self._conductor = conductor
        self._has_ended = has_ended
        self._cycle: int | None = None

    @property
    def is_seen(self) -> bool:
        """Whether the last check saw an end, which may not count yet."""
        return self._cycle is not None

    def is_reached(self) -> bool:
        # Keep this order: if the cycle adds an image, the second line sees it.
        is_current = self._conductor.closed or (self._cycle is not None and self._conductor.cycles >= self._cycle)
        if not self._has_ended():
            self._cycle = None
            return False
        if self._cycle is None:
            self._cycle = self._conductor.request_cycle()
        return is_current


class Resource:
    """A resource that the driver holds for this client until it is closed."""

    _conductor: Conductor
    _closed = True
    registration_id: int
    channel: str
    stream_id: int
    channel_status_id: int

    def _open(self, conductor: Conductor, registration_id: int) -> None:
        self._conductor = conductor
        self.registration_id = registration_id
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether it is closed: by this application, because the driver ended, or because the client timed out."""
        return self._closed

    @property
    def error(self) -> Exception | None:
        """The error that ended it: a DriverTimeout or a ClientTimeout. None if it is open or ``close`` ended it."""
        return self._conductor.failure if self._closed else None

    @property
    def channel_status(self) -> ChannelStatus:
        """The state of the channel's endpoint. Always ACTIVE for IPC, which has no endpoint."""
        if self._closed:
            return ChannelStatus.CLOSING
        if self.channel_status_id == NO_CHANNEL_STATUS:
            return ChannelStatus.ACTIVE
        return ChannelStatus(self._conductor.counters.value(self.channel_status_id))

    @property
    def local_addresses(self) -> list[str]:
        """The addresses that the endpoint is bound to, as ``ip:port``. Empty for IPC, and until the endpoint is bound."""
        if self._closed or self.channel_status_id == NO_CHANNEL_STATUS:
            return []
        return find_local_addresses(self._conductor.counters, self.channel_status_id)

    def _release(self) -> None:
        """Release shared memory. Called once."""
        raise NotImplementedError

    def _leave_to_parent(self) -> None:
        self._release()

    def _end(self) -> None:
        self._conductor.close_resource(self)

    def _describe(self) -> str:
        return f"{self.channel} stream {self.stream_id}"

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<{type(self).__name__} {self._describe()}{state}>"

    def __del__(self) -> None:
        if not self._closed:
            try:
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            finally:
                self._conductor.leave_open(self)


class ResourceTable:
    """The open resources of a client, by registration id.

    It keeps them open until they or the client are closed, even if the application drops them. A resource that was let go lives
    only as long as the application refers to it.
    """

    def __init__(self) -> None:
        self._kept: dict[int, Resource] = {}
        self._let_go: WeakValueDictionary[int, Resource] = WeakValueDictionary()
        self._left_open: deque[Resource] = deque()
        self._destinations: dict[int, dict[int, str]] = {}  # channels by id, of each resource
        self._is_closed = False

    def add(self, resource: Resource) -> None:
        self._kept[resource.registration_id] = resource

    def let_go(self, resource: Resource) -> None:
        """Do not keep a resource open that the application has dropped."""
        if self._kept.pop(resource.registration_id, None) is not None:
            self._let_go[resource.registration_id] = resource

    def leave_open(self, resource: Resource) -> None:
        """Take a resource that is being collected, for `close_left_open`.

        This runs in whatever thread collects it, with any locks that thread holds.
        """
        if self._is_closed:
            # Shared memory may already be unmapped.
            resource._leave_to_parent()
        else:
            self._left_open.append(resource)

    def get(self, registration_id: int) -> Resource | None:
        return self._kept.get(registration_id) or self._let_go.get(registration_id)

    def items(self) -> list[tuple[int, Resource]]:
        return [*self._kept.items(), *self._let_go.items()]

    def values(self) -> list[Resource]:
        return [resource for _, resource in self.items()]

    def __len__(self) -> int:
        return len(self._kept) + len(self._let_go)

    def __iter__(self) -> Iterator[int]:
        return iter([registration_id for registration_id, _ in self.items()])

    def note_destination(self, resource: Resource, destination_id: int, channel: str) -> None:
        if not resource.closed:
            self._destinations.setdefault(resource.registration_id, {})[destination_id] = channel

    def destination(self, resource: Resource, destination_id: int) -> str | None:
        """Return the channel of a destination, if it was added."""
        return self._destinations.get(resource.registration_id, {}).get(destination_id)

    def close(self, resource: Resource) -> bool:
        """Release a resource's memory. Return False if it was closed before."""
        is_open = self._remove(resource)
        if is_open:
            resource._release()
        return is_open

    def close_left_open(self) -> Iterator[Resource]:
        while self._left_open:
            resource = self._left_open.popleft()
            self._remove(resource)
            resource._release()
            yield resource

    def _remove(self, resource: Resource) -> bool:
        registration_id = resource.registration_id
        self._destinations.pop(registration_id, None)
        found = self._kept.pop(registration_id, None) or self._let_go.pop(registration_id, None)
        return found is not None

    def close_all(self) -> None:
        for resource in self._remove_all():
            resource._release()

    def leave_to_parent(self) -> None:
        """Close everything in a forked child. What the driver sees belongs to the parent."""
        for resource in self._remove_all():
            resource._leave_to_parent()

    def _remove_all(self) -> list[Resource]:
        self._is_closed = True
        resources = [*self.values(), *self._left_open]
        self._kept.clear()
        self._let_go.clear()
        self._left_open.clear()
        self._destinations.clear()
        return resources


class Closing:
    """A resource of a blocking client that can be closed."""

    def _end(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Close it. Idempotent."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Destinations(Resource, Closing):
    """A resource that can have several channels: a publication sends to each of them, a subscription receives from each."""

    def add_destination(self, channel: str, *, timeout: float | None = None) -> int:
        """Add a destination: another channel to send to or receive from. The resource's channel must have ``control-mode=manual``.

        Args:
            channel: The destination, such as ``aeron:udp?endpoint=host:port``. For a subscription, it can also be IPC or a spy.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Returns:
            The destination's id, for ``remove_destination``.

        Raises:
            MainstemError: The errors that the class `Aeron` lists for its calls.
        """
        return wait_or_cancel(self._conductor.add_destination(self, channel), timeout)

    def async_add_destination(self, channel: str) -> Operation[int]:
        """Add a destination without waiting. ``channel`` is that of `add_destination`.

        Returns:
            The pending operation. Its result is the destination's id.
        """
        return self._conductor.add_destination(self, channel)

    def remove_destination(self, destination: str | int, *, timeout: float | None = None) -> None:
        """Remove a destination.

        Args:
            destination: The destination's channel, or the id that ``add_destination`` returned.
            timeout: Seconds to wait for the driver; by default, and at most, the driver timeout.

        Raises:
            RegistrationError: The driver refused the command.
            DriverTimeout: The driver did not respond in time.
            ClosedError: The publication or subscription is closed.
            ConfigurationError: The subscription has no destination with this id.
        """
        timeout = timeout_of(timeout)
        self._conductor.remove_destination(self, destination).wait(timeout)


def raise_error_of(resource: Any) -> None:
    """Raise the error that ended a resource, if there is one."""
    if resource.error is not None:
        raise resource.error.with_traceback(None)


def check_channel(channel: Any, stream_id: int | None = None) -> None:
    """Raise TypeError unless ``channel`` is a str, and ChannelUriError if it has a likely mistake."""
    if not isinstance(channel, str):
        raise TypeError(f"channel must be a str such as 'aeron:ipc' (got {channel!r})")
    channels.check_channel(channel, stream_id)


def check_arguments(channel: Any, stream_id: Any) -> None:
    if not isinstance(stream_id, int):
        raise TypeError(f"stream_id must be an int (got {stream_id!r})")
    check_channel(channel, stream_id)
