"""How many instructions does the compiled data path take per message? Unlike time, the count does not depend on the host's load.

``python tools/instruction_counts.py [CASE ...] [--json]`` runs each case under valgrind (which must be installed) and prints the
instructions per message of 64 bytes. PYTHONPATH selects the tree to measure, so two trees can be compared. A run without any case
is subtracted, which excludes interpreter startup and imports.

Cases: ``single`` offers and polls messages one by one, ``poll`` polls runs of messages with an empty handler, ``list`` polls
lists of bytes, ``columns`` polls Arrow columns, ``network`` drives a sender and a receiver with a transport in memory between
them, ``status`` counts one cycle of both with no data but a status message.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import re
import socket
import struct
import subprocess
import sys

from mainstem._core import layout
from mainstem._core.driver.datagram import Address, MemoryTransport
from mainstem._core.driver.receive_cycle import ReceiverCycle
from mainstem._core.driver.receive_path import ReceiveEndpointCore, ReceivePath
from mainstem._core.driver.send_cycle import SenderCycle
from mainstem._core.driver.send_path import SendEndpointCore, SendPath
from mainstem._core.log.append import ExclusiveAppender
from mainstem._core.log.read import ImageReader
from mainstem._core.memory.buffer import AtomicBuffer

MESSAGES = 20_000
CYCLES = 2_000
BATCH = 500
SIZE = 64
TERM_LENGTH = 1 << 20
MTU = 1408
SESSION_ID, STREAM_ID, INITIAL_TERM_ID = 5, 10, 3
ADDRESS = struct.pack("<HH4s8x", socket.AF_INET, 0x3412, b"\x7f\x00\x00\x01")
PUBLISHER_LIMIT, PUBLISHER_POSITION, SENDER_POSITION, SENDER_LIMIT, PRESSURE = 50, 51, 52, 53, 54
HIGH_WATER_MARK, RECEIVER_POSITION, SUBSCRIBER = 60, 61, 62


def new_log() -> AtomicBuffer:
    meta = layout.PARTITION_COUNT * TERM_LENGTH
    log = AtomicBuffer(bytearray(meta + layout.LOG_METADATA_LENGTH))
    for i, term_id in enumerate((INITIAL_TERM_ID, INITIAL_TERM_ID - 2, INITIAL_TERM_ID - 1)):
        log.put_i64(meta + 8 * i, term_id << 32)
    header = meta + layout.LOG_DEFAULT_HEADER_OFFSET
    for offset, value in (
        (meta + layout.LOG_TERM_LENGTH_OFFSET, TERM_LENGTH),
        (meta + layout.LOG_INITIAL_TERM_ID_OFFSET, INITIAL_TERM_ID),
        (meta + layout.LOG_MTU_LENGTH_OFFSET, MTU),
        (meta + layout.LOG_IS_CONNECTED_OFFSET, 1),
        (header + layout.FRAME_SESSION_ID_OFFSET, SESSION_ID),
        (header + layout.FRAME_STREAM_ID_OFFSET, STREAM_ID),
    ):
        log.put_i32(offset, value)
    return log


class Local:
    """A publication and a subscription over one log, which never fills up and is zeroed after reading."""

    def __init__(self) -> None:
        self.log = new_log()
        self.counters = AtomicBuffer(bytearray(128 * 128))
        self.counters.put_i64(PUBLISHER_LIMIT * layout.COUNTER_VALUE_LENGTH, 1 << 60)
        self.appender = ExclusiveAppender(self.log, self.counters, PUBLISHER_LIMIT)
        self.reader = ImageReader(self.log, self.counters, SUBSCRIBER)
        self.rows = AtomicBuffer(bytearray(8 * 4096)), AtomicBuffer(bytearray(4 * 4096))
        self.messages = [bytes(SIZE)] * BATCH
        self.data = bytes(SIZE * BATCH)
        self.offsets = array.array("i", range(0, SIZE * (BATCH + 1), SIZE))

    def single(self) -> None:
        count = 0
        while count < MESSAGES:
            for message in self.messages:
                if self.appender.offer(message) < 0:
                    self.appender.offer(message)  # the previous offer ended the term
            for _ in range(BATCH // 10):
                self.reader.poll(len, 10)
            while self.reader.poll(len, 10):
                pass
            count += BATCH

    def poll(self) -> None:
        def handle(_fragment: object) -> None:
            pass

        count = 0
        while count < MESSAGES:
            self.appender.offer_columns(self.data, self.offsets)
            while received := self.reader.poll(handle, BATCH):
                count += received

    def list(self) -> None:
        count = 0
        while count < MESSAGES:
            self.appender.offer_many(self.messages)
            while received := self.reader.poll_bytes(BATCH):
                count += len(received)

    def columns(self) -> None:
        count = 0
        while count < MESSAGES:
            self.appender.offer_columns(self.data, self.offsets)
            while True:
                received, position = self.reader.scan(*self.rows)
                self.reader.release(position)
                count += received
                if received == 0:
                    break


class Network:
    """A sender and a receiver with one stream between them. Datagrams are moved explicitly."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.counters = AtomicBuffer(bytearray(128 * 128))
        self.out_log, self.in_log = new_log(), new_log()
        self.sender_transport, self.receiver_transport = MemoryTransport(max_segments=64), MemoryTransport()
        self.send_endpoint = SendEndpointCore(self.sender_transport, self.counters, key=1)
        self.send_path = SendPath(
            self.out_log, self.counters, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, TERM_LENGTH, MTU, TERM_LENGTH // 2,
            PUBLISHER_LIMIT, PUBLISHER_POSITION, SENDER_POSITION, SENDER_LIMIT, PRESSURE, now_ns=1,
        )  # fmt: skip
        self.sender = SenderCycle(self.counters)
        self.sender.add_endpoint(self.send_endpoint)
        self.sender.add_path(self.send_path, self.send_endpoint)
        self.receive_endpoint = ReceiveEndpointCore(self.counters, key=1)
        index = self.receive_endpoint.add_transport(self.receiver_transport)
        self.receive_endpoint.interests.put(STREAM_ID, 0, True)
        self.receive_path = ReceivePath(
            self.in_log, self.counters, SESSION_ID, STREAM_ID, INITIAL_TERM_ID, TERM_LENGTH, MTU, 0, TERM_LENGTH // 4, 99,
            HIGH_WATER_MARK, RECEIVER_POSITION, now_ns=1,
        )  # fmt: skip
        self.receiver = ReceiverCycle(self.counters)
        self.receiver.add_endpoint(self.receive_endpoint)
        self.receiver.add_path(self.receive_path, self.receive_endpoint)
        self.receive_path.subscribers.add(SUBSCRIBER)
        self.receive_path.add_connection(self.receiver_transport, index, Address(ADDRESS), None, 1)
        self.send_path.add_receiver(99, TERM_LENGTH // 4, 1)
        self.appender = ExclusiveAppender(self.out_log, self.counters, PUBLISHER_LIMIT)
        self.reader = ImageReader(self.in_log, self.counters, SUBSCRIBER)
        self.rows = AtomicBuffer(bytearray(8 * 4096)), AtomicBuffer(bytearray(4 * 4096))
        self.data = bytes(SIZE * BATCH)
        self.offsets = array.array("i", range(0, SIZE * (BATCH + 1), SIZE))

    def cycle(self) -> None:
        """Run one duty cycle of each agent. Datagrams that one has sent arrive before the other's cycle."""
        self.now_ns += 1000
        self.sender.run_cycle(self.now_ns)
        for _, datagram in self.sender_transport.take():
            self.receiver_transport.deliver(datagram, ADDRESS)
        self.receiver.run_cycle(self.now_ns)
        for _, datagram in self.receiver_transport.take():
            self.sender_transport.deliver(datagram, ADDRESS)

    def network(self) -> None:
        count = 0
        while count < MESSAGES:
            self.appender.offer_columns(self.data, self.offsets)
            self.cycle()
            received, position = self.reader.scan(*self.rows)
            self.reader.release(position)
            count += received

    def status(self) -> None:
        for _ in range(CYCLES):
            self.receive_path.status_now()
            self.cycle()


CASES = {
    "single": MESSAGES,
    "poll": MESSAGES,
    "list": MESSAGES,
    "columns": MESSAGES,
    "network": MESSAGES,
    "status": CYCLES,
}


def instructions(case: str) -> int:
    """Return the instructions of a whole process that runs one case, or only its preparations."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    result = subprocess.run(
        [*command, sys.executable, __file__, "--run", case],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    match = re.search(r"I\s+refs:\s+([\d,]+)", result.stderr)
    if match is None:
        raise RuntimeError(f"valgrind counted nothing: {result.stderr}")
    return int(match[1].replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all by default")
    parser.add_argument("--json", action="store_true", help="one object, case to instructions for one message")
    parser.add_argument("--run", metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        for streams in (Local(), Network()):
            if hasattr(streams, options.run):
                getattr(streams, options.run)()
        return
    before = instructions("nothing")
    counts = {case: round((instructions(case) - before) / CASES[case], 1) for case in options.cases or CASES}
    print(json.dumps(counts) if options.json else "\n".join(f"{name:8} {count:9.1f}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
