"""What a driver is made with: its settings, its directory and the doors to the world."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from random import Random, SystemRandom

from mainstem.aeron.driver.settings import DriverSettings
from mainstem.aeron.files import Files, MappedFiles
from mainstem.clock import SYSTEM_CLOCK, Clock
from mainstem.instruments import NULL_INSTRUMENT, Instrument


def seeded_random() -> Random:
    """A generator that no two drivers share."""
    return Random(SystemRandom().getrandbits(64))


@dataclass(kw_only=True)
class DriverContext:
    """One driver's doors. The defaults are the machine itself; the simulator brings its own.

    ``directory`` is where the CnC file and the logs go. ``pid`` is what the CnC file says.
    """

    directory: str
    settings: DriverSettings = field(default_factory=DriverSettings)
    clock: Clock = SYSTEM_CLOCK
    files: Files = field(default_factory=MappedFiles)
    random: Random = field(default_factory=seeded_random)
    instrument: Instrument = NULL_INSTRUMENT
    pid: int = field(default_factory=os.getpid)
