"""A fleet of sensors over a link that loses 10% of all datagrams: every reading arrives, once and in order.

python examples/sensor_fleet.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from typing import Any

from mainstem import Aeron, MediaDriver

CHANNEL, STREAM = "aeron:udp?endpoint=127.0.0.1:20391", 1001
SENSORS, READINGS = 5, 200
LOSSY: dict[str, Any] = {
    "udp_channel_incoming_interceptors": "loss",
    "udp_channel_transport_bindings_loss_args": "rate=0.1|seed=7",  # the same datagrams are lost in every run
}


def reading(sensor: int, number: int) -> bytes:
    return json.dumps({"sensor": sensor, "number": number, "celsius": 20 + sensor + number / 1000}).encode()


def naks_sent(directory: str) -> int:
    """Return how many NAKs the station has sent, as Prometheus would read it."""
    command = [sys.executable, "-m", "mainstem", "metrics", "--dir", directory]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"^mainstem_system_naks_sent (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else 0


def main() -> None:
    with (
        MediaDriver.launch(threading_mode="SHARED") as field,
        MediaDriver.launch(threading_mode="SHARED", **LOSSY) as station,
        Aeron.connect(field.directory) as sensors,
        Aeron.connect(station.directory) as collector,
        collector.add_subscription(CHANNEL, STREAM) as subscription,
    ):
        # Exclusive publications: each sensor has its own session, with its own positions and retransmissions.
        fleet = [sensors.add_exclusive_publication(CHANNEL, STREAM) for _ in range(SENSORS)]
        for number in range(READINGS):
            for sensor, publication in enumerate(fleet):
                publication.send(reading(sensor, number), timeout=20)

        numbers: dict[int, list[int]] = defaultdict(list)
        messages = subscription.messages(timeout=20)
        for _ in range(SENSORS * READINGS):
            row = json.loads(next(messages))
            numbers[row["sensor"]].append(row["number"])
        assert all(numbers[sensor] == list(range(READINGS)) for sensor in range(SENSORS))
        repaired = naks_sent(station.directory)
        print(
            f"{SENSORS} sensors, {SENSORS * READINGS} readings, each once and in order; loss was repaired: {repaired > 0}"
        )


if __name__ == "__main__":
    main()
