"""A hostile peer with a raw UDP socket that implements a minimal part of the protocol: SETUP, data frames, status messages."""

from __future__ import annotations

import socket
import time
from typing import Self

from mainstem._core import layout
from mainstem.aeron.protocol.frames import Data, Setup, StatusMessage

STREAM_ID = 0x2044F002
UNFRAGMENTED = layout.FLAG_UNFRAGMENTED
BEGIN = layout.FLAG_BEGIN
REPEATS = 4
IMAGE_SECONDS = 0.1  # about the time a driver needs to create an image; the peer waits REPEATS times as long


def setup(session: int, *, term_length: int = 65536, mtu: int = 1408, stream: int = STREAM_ID) -> bytes:
    terms = {"initial_term_id": 0, "active_term_id": 0, "term_offset": 0, "term_length": term_length}
    return Setup(session_id=session, stream_id=stream, **terms, mtu=mtu).encode()


def data(session: int, payload: bytes, *, offset: int = 0, term: int = 0, flags: int = UNFRAGMENTED) -> bytes:
    header = {"session_id": session, "stream_id": STREAM_ID, "term_id": term, "term_offset": offset}
    return Data(**header, flags=flags, payload=payload).encode()


def status(
    session: int, *, stream: int = STREAM_ID, flags: int = layout.SM_FLAG_SEND_SETUP, receiver: int = 666
) -> bytes:
    ids = {"session_id": session, "stream_id": stream, "receiver_id": receiver}
    return StatusMessage(**ids, receiver_window=1 << 17, flags=flags).encode()


class Hostile:
    """One socket, bound to its own address in 127.0.0.0/8, so that the server sees another host."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 0))
        self.socket.setblocking(False)

    def introduce(self, to: tuple[str, int], session: int, text: bytes, **more: int) -> None:
        """Send a stream with one message, without waiting for any response."""
        self.introduce_many(to, {session: text}, **more)

    def introduce_many(self, to: tuple[str, int], texts: dict[int, bytes], **more: int) -> None:
        """Send several streams. Data that arrives before the driver has created the image is lost, so it is sent repeatedly."""
        for session in texts:
            self.send(to, setup(session, **more))
        for _ in range(REPEATS):
            time.sleep(IMAGE_SECONDS)
            for session, text in texts.items():
                self.send(to, data(session, text))

    def send(self, to: tuple[str, int], datagram: bytes) -> None:
        try:
            self.socket.sendto(datagram, to)
        except BlockingIOError:
            return  # a flood does not wait

    def received(self) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(65536))
            except BlockingIOError:
                return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
