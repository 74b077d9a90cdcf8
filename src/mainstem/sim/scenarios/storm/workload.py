"""What goes on in a storm: the class that streams and programs share, and what they meet when machines end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import ClosedError, CorruptLogError, RegistrationError, Timeout

if TYPE_CHECKING:
    from mainstem.sim.host import Host

# What a program meets whose client or driver is gone, or whose driver has no room for a log.
GONE = (ClosedError, Timeout, RegistrationError, CorruptLogError)


def runs(host: Host) -> bool:
    """Whether programs of a machine run."""
    return host.is_up and not host.is_paused and not host.is_client_paused and not host.aeron.closed


class Workload:
    """A stream or a program that lives through a storm, whatever ends and begins; it checks itself all the time."""

    def step(self, *, offers: bool, pause_probability: dict[str, float]) -> None:
        """Run one duty cycle of everything that belongs to it, on the machines that run.

        ``offers`` says whether it may send something new; ``pause_probability`` is how likely a reader pauses, by machine.
        """
        raise NotImplementedError

    def heal(self) -> None:
        """Ends the faults that are its own; most have none."""

    def begin_again(self) -> None:
        """Ends what there is of it: the next begins without what damaged frames have left."""

    @property
    def is_connected(self) -> bool:
        """Whether all of it is there again."""
        raise NotImplementedError

    def aim(self, count: int) -> None:
        """Sets how many messages are to come after the storm."""

    @property
    def has_offered(self) -> bool:
        """Whether they have been offered; most send by themselves."""
        return True

    @property
    def is_read(self) -> bool:
        """Whether they have arrived."""
        raise NotImplementedError

    def finish(self) -> None:
        """Ends it in order after the storm, and checks what it leaves; most leave nothing."""

    def close(self) -> None:
        """Gives back what the clients of the drivers do not, however the storm ended; most have nothing."""
