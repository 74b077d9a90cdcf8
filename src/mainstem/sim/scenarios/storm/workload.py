"""The base class of everything that runs in a storm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import ClosedError, CorruptLogError, RegistrationError, Timeout

if TYPE_CHECKING:
    from mainstem.sim.host import Host

# What a program meets whose client or driver is gone, or whose driver has no room for a log.
GONE = (ClosedError, Timeout, RegistrationError, CorruptLogError)


def runs(host: Host) -> bool:
    """Whether programs on a host run."""
    return host.is_up and not host.is_paused and not host.is_client_paused and not host.aeron.closed


class Workload:
    """A stream or an application that runs through a storm and constantly checks itself."""

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        """Run one duty cycle of everything that belongs to it, on hosts that run.

        ``offers`` says whether it may send new messages; ``pause_probability`` is how likely a reader pauses, by host.
        """
        raise NotImplementedError

    def heal(self) -> None:
        """End its own faults. Most have none."""

    def restart(self) -> None:
        """Start again, without anything that damaged frames have affected."""

    @property
    def is_connected(self) -> bool:
        """Whether everything has reconnected."""
        raise NotImplementedError

    def aim(self, count: int) -> None:
        """Set how many messages to send after the storm."""

    @property
    def has_offered(self) -> bool:
        """Whether they have been offered. Most workloads send by themselves."""
        return True

    @property
    def is_read(self) -> bool:
        """Whether they have arrived."""
        raise NotImplementedError

    def finish(self) -> None:
        """Close in an orderly way after the storm, and check what is left."""

    def close(self) -> None:
        """Release what the Aeron clients do not, however the storm ended."""
