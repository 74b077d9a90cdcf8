"""Record a stream while it is published, and read the recording back by position.

python examples/record_a_stream.py
"""

from __future__ import annotations

import tempfile

from mainstem import Aeron, MediaDriver
from mainstem.recording import Recorder, messages, open_recording

CHANNEL, STREAM = "aeron:ipc", 1001


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as recordings,
        MediaDriver.launch() as driver,
        Aeron.connect(driver.directory) as aeron,
        aeron.add_subscription(CHANNEL, STREAM) as subscription,
        aeron.add_exclusive_publication(CHANNEL, STREAM) as publication,
    ):
        with Recorder(recordings) as recorder:
            recorder.add_subscription(subscription)
            for number in range(5):
                publication.send(f"tide {number}".encode(), timeout=5.0)
            # Other programs, including Spark, may read up to the recorded position.
            while publication.position not in recorder.active.values():
                recorder.do_work()

        with open_recording(recordings, 0) as recording:
            for position, payload in messages(recording, recording.start_position, recording.end_position()):
                print(position, payload.decode())


if __name__ == "__main__":
    main()
