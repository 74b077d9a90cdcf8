"""Claims space in a concurrent publication and dies before committing. Arguments: the driver's directory and the channel."""

from __future__ import annotations

import os
import signal
import sys
import time

from mainstem._core.log.append import BufferClaim
from mainstem.aeron.client.client import Aeron

with Aeron.connect(sys.argv[1]) as aeron:
    publication = aeron.add_publication(sys.argv[2], 1001)
    while publication.offer(b"before") < 0:
        time.sleep(0.001)
    claim = BufferClaim()
    while publication.try_claim(100, claim) < 0:
        time.sleep(0.001)
    print("claimed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
