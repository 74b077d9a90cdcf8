"""A simulated host: a media driver and a client that can crash, restart, pause, or run out of disk space."""

from __future__ import annotations

import ipaddress
from random import Random
from typing import TYPE_CHECKING, Any

from mainstem._internal.clock import NEVER_NS
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.client.context import ClientContext, log_error
from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.driver.context import DriverContext
from mainstem.aeron.driver.media.addresses import InetAddress, NetworkInterface
from mainstem.aeron.driver.media.transport import BufferLimits, OpenTransport
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.files import MemoryFiles
from mainstem.errors import ActiveDriverError
from mainstem.sim.clock import HostClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstem.aeron.driver.media.transport import TransportRequest
    from mainstem.aeron.driver.settings import DriverSettings
    from mainstem.sim.clock import ManualClock
    from mainstem.sim.network import SimNetwork


# -- transports --------------------------------------------------------------------------------------------------------


SOCKET_BUFFER_LENGTH = 4 << 20  # the size that a simulated socket reports; it never drops anything for lack of space


class HostTransports:
    """``Transports`` with sockets bound to ``address`` in a simulated network. ``names`` is the host's DNS."""

    def __init__(self, network: SimNetwork, address: str) -> None:
        self.network = network
        self.address = address
        self.names: dict[str, str] = {}

    def open(self, request: TransportRequest) -> OpenTransport:
        """Return a bound socket for the driver's ``request``. A wildcard address becomes this host's.

        Raises:
            ConfigurationError: The address is taken.
        """
        local = request.bind
        if local.is_wildcard or local.is_multicast:
            local = InetAddress(self.address, local.port)
        opened = self.network.open(local, connected=request.connect, group=request.group)
        return OpenTransport(
            transport=opened.transport,
            local_address=opened.local,
            receive_buffer_length=request.so_rcvbuf or SOCKET_BUFFER_LENGTH,
            send_buffer_length=request.so_sndbuf or SOCKET_BUFFER_LENGTH,
            release=_nothing,
            reconnect=lambda address: setattr(opened, "connected", address),
        )

    def resolve(self, host: str) -> str:
        """Return the numeric address of ``host``, a name in ``names`` or a numeric address.

        Raises:
            LookupError: The name is unknown.
        """
        try:
            return str(ipaddress.ip_address(self.names.get(host, host)))
        except ValueError:
            raise LookupError(f"Unable to resolve host=({host}): unknown host") from None

    def buffer_limits(self) -> BufferLimits:
        """Return the default and maximum sizes of a simulated socket's buffers."""
        return BufferLimits(*[SOCKET_BUFFER_LENGTH] * 4)

    def interfaces(self) -> Sequence[NetworkInterface]:
        """Return one network interface, with this host's address."""
        return [NetworkInterface(name="sim0", index=1, ip=self.address, is_loopback=False)]


def _nothing() -> None: ...


class Host:
    """A host of a world, created by ``World.add_host``.

    Attributes:
        name: Its name, also used as its Aeron directory.
        address: Its IP address.
        names: Its DNS, from name to address. It can be changed at any time.
        files: Its file system.
        clock: Its clock.
        driver: Its media driver.
        aeron: The client connected to it.
        is_up: Whether driver and client are running.
        is_paused: Whether driver and client get no duty cycles.
        is_client_paused: Whether the client gets no duty cycles.
        starts: How many times its client has started.
        on_power_loss: Called when the host loses power, to take from its programs' files what was not flushed.
    """

    def __init__(
        self,
        name: str,
        address: str,
        settings: DriverSettings,
        driver_timeout_ns: int,
        *,
        clock: ManualClock,
        network: SimNetwork,
        rng: Random,
        tick: Callable[[], int],
        on_error: Callable[[BaseException], object],
    ) -> None:
        self.name = name
        self.address = address
        self.files = MemoryFiles()
        self.clock = HostClock(clock)
        self.is_up = False
        self.is_paused = False
        self.is_client_paused = False
        self.starts = 0
        self.client_due_ns = 0
        self.on_power_loss: list[Callable[[], object]] = []
        self._settings = settings
        self._driver_timeout_ns = driver_timeout_ns
        self._rng = rng
        self._tick = tick
        self._on_error = on_error
        self._transports = HostTransports(network, address)
        self.names = self._transports.names
        self.driver: MediaDriver
        self.aeron: Aeron

    def start(self) -> bool:
        """Start a client and a driver in the host's directory, whatever an earlier driver left there.

        Returns:
            False if the heartbeat of the earlier driver is too recent to presume it dead.
        """
        context = DriverContext(
            directory=f"/{self.name}",
            settings=self._settings,
            clock=self.clock,
            files=self.files,
            rng=Random(self._rng.getrandbits(64)),
            transports=self._transports,
        )
        try:
            self.driver = MediaDriver.launch(context=context)
        except ActiveDriverError:
            return False
        self._drive = self.driver.do_work
        self.is_up = True
        self.is_paused = self.is_client_paused = False
        self.connect()
        return True

    def connect(self) -> None:
        """Connect a client. The host must not have one."""
        self.aeron = self.new_client(self.name, driver_timeout_ns=self._driver_timeout_ns, on_error=self._on_error)
        self.starts += 1
        self.client_due_ns = 0

    def new_client(
        self, name: str, *, on_error: Callable[[BaseException], object] = log_error, **settings: Any
    ) -> Aeron:
        """Connect another client to the driver, without a thread: the caller runs its duty cycles.

        Args:
            name: The name that the driver shows for the client.
            on_error: Called with errors that no call can raise, such as the end of the driver. By default they are logged.
            **settings: Fields of ``ClientSettings``.

        Returns:
            The client. The caller closes it.
        """
        context = ClientContext(
            settings=ClientSettings(dir=f"/{self.name}", client_name=name, client_idle_sleep_duration_ns=0, **settings),
            files=self.files,
            clock=self.clock,
            use_invoker=True,
            # The world keeps running while the client waits for its driver.
            driver_invoker=self._tick,
            on_error=on_error,
        )
        return Aeron.connect(context=context)

    def crash(self) -> None:
        """Crash driver and client: no one is notified, sockets close, and files stay as they are."""
        if self.is_up:
            self.is_up = False
            self.kill_client()
            self.driver._leave_to_parent()
            self._transports.network.close_all(self.address)

    def lose_power(self) -> None:
        """Crash everything on the host, and lose what its programs have not flushed."""
        self.crash()
        for lose in self.on_power_loss:
            lose()

    def kill_client(self) -> None:
        """Kill the client without notifying the driver."""
        self.aeron._leave_to_parent()

    def drive(self) -> int:
        """Run one duty cycle of the driver and return its work count."""
        return self._drive() if self.is_up and not self.is_paused else 0

    def invoke(self) -> None:
        """Run one duty cycle of the client."""
        if self.is_up and not self.is_paused and not self.is_client_paused:
            self.aeron.invoke()

    @property
    def due_in_ns(self) -> int:
        """The nanoseconds until the driver must run again; negative if it is overdue."""
        if not self.is_up or self.is_paused:
            return NEVER_NS
        return self.driver.next_due_ns - self.clock.monotonic_ns()

    def close(self) -> None:
        """Close the client and the driver."""
        if self.is_up:
            self.is_up = False
            self.aeron.close()
            self.driver.close()
