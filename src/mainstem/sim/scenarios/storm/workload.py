"""The base class of everything that runs in a storm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import ClosedError, CorruptLogError, RegistrationError, Timeout

if TYPE_CHECKING:
    from mainstem.sim.host import Host

# What a program meets whose client or driver is gone, or whose driver has no room for a log.
GONE = (ClosedError, Timeout, RegistrationError, CorruptLogError)


def runs(host: Host) -> bool:
    return host.is_up and not host.is_paused and not host.is_client_paused and not host.aeron.closed


class Workload:
    """A stream or an application that runs through a storm and constantly checks itself."""

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        """Run one duty cycle of everything that belongs to it, on hosts that run.

        ``offers`` says whether it may send new messages; ``pause_probability`` is how likely a reader pauses, by host.
        """
        raise NotImplementedError

    def heal(self) -> None: ...

    def restart(self) -> None: ...

    @property
    def is_connected(self) -> bool:
        raise NotImplementedError

    def aim(self, count: int) -> None: ...

    @property
    def has_offered(self) -> bool:
        return True

    @property
    def is_read(self) -> bool:
        raise NotImplementedError

    def finish(self) -> None: ...

    def close(self) -> None: ...
