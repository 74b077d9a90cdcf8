"""How fast the driver's data path is by itself: two processes in invoker style, one stream, UDP on loopback.

The publisher offers batches and runs a sender, the subscriber runs a receiver and takes batches; no conductor, no client.
``python tools/datapath_throughput.py [SECONDS] [--sizes 32,256,1024] [--no-offload] [--each] [--one]``
"""

from __future__ import annotations

import argparse
import array
import os
import sys
import time
from collections import deque

from mainstem._core.driver.receive_path import ReceivePath
from mainstem._core.driver.send_path import SendPath
from mainstem._core.log.append import ExclusiveAppender
from mainstem._core.log.read import ImageReader
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.channel import ChannelUri
from mainstem.aeron.driver.agent_proxies import ReceiverProxy, SenderProxy
from mainstem.aeron.driver.media.endpoints import ReceiveChannelEndpoint, SendChannelEndpoint
from mainstem.aeron.driver.media.transport import SystemTransports
from mainstem.aeron.driver.media.udp_channel import UdpChannel
from mainstem.aeron.driver.messages import CreateImage
from mainstem.aeron.driver.receiver.receiver import Receiver
from mainstem.aeron.driver.receiver.receiver_image import ReceiverImage
from mainstem.aeron.driver.sender.sender import Sender
from mainstem.aeron.driver.sender.sender_publication import SenderPublication
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType

TERM_LENGTH = 4 << 20
WINDOW = 1 << 20
BATCH = 1000
PORT = 24_391


def new_log(log_type: LogType) -> AtomicBuffer:
    parameters = LogParameters(
        correlation_id=1,
        session_id=5,
        stream_id=10,
        initial_term_id=3,
        term_length=TERM_LENGTH,
        mtu=1408,
        log_type=log_type,
    )
    buffer = AtomicBuffer(bytearray(parameters.log_length))
    LogBuffers.create(buffer, parameters)
    return buffer


class Publisher:
    """A sender with one publication that offers batches, or messages one by one."""

    def __init__(self, size: int, offload: bool, each: bool) -> None:
        self.counters = AtomicBuffer(bytearray(128 * 64))
        self.sender = Sender(counters=self.counters, to_conductor=deque())
        to_sender = SenderProxy(self.sender)
        channel = UdpChannel.parse(ChannelUri.parse(f"aeron:udp?endpoint=127.0.0.1:{PORT}"))
        endpoint = SendChannelEndpoint(channel, SystemTransports(offload=offload), self.counters, so_sndbuf=2 << 20)
        log = new_log(LogType.EXCLUSIVE_PUBLICATION)
        now_ns = time.monotonic_ns()
        window = TERM_LENGTH // 2
        path = SendPath(log, self.counters, 5, 10, 3, TERM_LENGTH, 1408, window, 50, 51, 52, 53, 54, now_ns=now_ns)
        to_sender.register_endpoint(endpoint)
        to_sender.add_publication(SenderPublication(path, endpoint))
        self.appender = ExclusiveAppender(log, self.counters, 50)
        self.message = bytes(size)
        self.data = bytes(size * BATCH)
        self.offsets = array.array("i", range(0, size * (BATCH + 1), size))
        self.each = each

    def work(self, now_ns: int) -> None:
        if self.each:
            for _ in range(100):
                if self.appender.offer(self.message) < 0:
                    break
        else:
            self.appender.offer_columns(self.data, self.offsets)
        self.sender.do_work(now_ns)

    def close(self) -> None:
        value = self.counters.get_i64
        print(
            f"      back pressure {value(128 * 54)}, short sends {value(128 * 16)}, retransmits {value(128 * 11)}, "
            f"status messages {value(128 * 8)}"
        )
        self.sender.close()


class Subscriber:
    """A receiver with one image that takes batches."""

    def __init__(self, offload: bool) -> None:
        self.counters = AtomicBuffer(bytearray(128 * 64))
        self.mailbox: deque[object] = deque()
        self.receiver = Receiver(counters=self.counters, to_conductor=self.mailbox)
        self.to_receiver = ReceiverProxy(self.receiver)
        channel = UdpChannel.parse(ChannelUri.parse(f"aeron:udp?endpoint=127.0.0.1:{PORT}"))
        transports = SystemTransports(offload=offload)
        self.endpoint = ReceiveChannelEndpoint(channel, transports, self.counters, receiver_id=9, so_rcvbuf=4 << 20)
        self.to_receiver.register_endpoint(self.endpoint)
        self.to_receiver.add_subscription(self.endpoint, 10)
        self.reader: ImageReader | None = None
        self.columns = AtomicBuffer(bytearray(8 * 4096)), AtomicBuffer(bytearray(4 * 4096))
        self.count, self.first_ns, self.last_ns = 0, 0, 0

    def work(self, now_ns: int) -> None:
        self.receiver.do_work(now_ns)
        while self.mailbox:
            made = self.mailbox.popleft()
            if isinstance(made, CreateImage):
                log = new_log(LogType.IMAGE)
                path = ReceivePath(log, self.counters, 5, 10, 3, TERM_LENGTH, 1408, 0, WINDOW, 9, 60, 61, now_ns=now_ns)
                path.subscribers.add(62)
                self.reader = ImageReader(log, self.counters, 62)
                image = ReceiverImage(path, receiver_id=9, source=made.source, control_address=made.control_address)
                self.to_receiver.add_image(self.endpoint, image)
        if self.reader is not None:
            n, position = self.reader.scan(*self.columns)
            if n:
                self.first_ns = self.first_ns or now_ns
                self.last_ns = now_ns
                self.count += n
                self.reader.release(position)

    def close(self) -> None:
        value = self.counters.get_i64
        print(
            f"      naks {value(128 * 5)}, over runs {value(128 * 13)}, under runs {value(128 * 12)}, invalid {value(128 * 14)}"
        )
        self.receiver.close()


def one_process(size: int, seconds: float, offload: bool, each: bool) -> None:
    """Both ends in turn, and the rate by the processor's time: steady on a machine that is busy with other things."""
    subscriber = Subscriber(offload)
    publisher = Publisher(size, offload, each)
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    cpu = time.process_time()
    while (now_ns := time.monotonic_ns()) < end_ns:
        publisher.work(now_ns)
        subscriber.work(now_ns)
    cpu = time.process_time() - cpu
    print(
        f"{size:5} B: {subscriber.count / cpu / 1e6:7.3f} M msg in a processor second ({subscriber.count} messages, {cpu:.2f} s)"
    )
    publisher.close()
    subscriber.close()


def two_processes(size: int, seconds: float, offload: bool, each: bool) -> None:
    child = os.fork()
    if child == 0:
        subscriber = Subscriber(offload)
        end_ns = time.monotonic_ns() + int((seconds + 1) * 1e9)
        while (now_ns := time.monotonic_ns()) < end_ns:
            subscriber.work(now_ns)
        rate = subscriber.count / max(1, subscriber.last_ns - subscriber.first_ns) * 1e3
        print(f"{size:5} B: {rate:7.3f} M msg/s ({rate * size:8.1f} MB/s), {subscriber.count} messages")
        subscriber.close()
        sys.stdout.flush()
        os._exit(0)
    time.sleep(0.1)
    publisher = Publisher(size, offload, each)
    end_ns = time.monotonic_ns() + int(seconds * 1e9)
    while (now_ns := time.monotonic_ns()) < end_ns:
        publisher.work(now_ns)
    publisher.close()
    os.waitpid(child, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=2.0)
    parser.add_argument("--sizes", default="32,256,1024")
    parser.add_argument("--no-offload", action="store_true", help="without segmentation and coalescing by the kernel")
    parser.add_argument("--each", action="store_true", help="a call for each message")
    parser.add_argument("--one", action="store_true", help="both ends in one process, by processor time")
    options = parser.parse_args()
    run = one_process if options.one else two_processes
    for size in map(int, options.sizes.split(",")):
        run(size, options.seconds, not options.no_offload, options.each)


if __name__ == "__main__":
    main()
