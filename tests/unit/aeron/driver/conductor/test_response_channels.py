"""A response channel from its first frame on, as recorded between two reference drivers (docs/protocols/aeron.md, 28.4)."""

from __future__ import annotations

import struct

from tests.support.invoked_driver import InvokedDriver, only

from mainstem._core import layout
from mainstem.aeron.command import responses
from mainstem.sim import PERFECT, SimNetwork, World

ASK, ANSWER = 10_000, 10_001
NAMES = {
    layout.TYPE_SM: "SM",
    layout.TYPE_SETUP: "SETUP",
    layout.TYPE_RSP_SETUP: "RSP_SETUP",
    layout.TYPE_DATA: "DATA",
}


class Recorder:
    """Records every frame sent: (destination port, name, flags, session, stream)."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, str, int, int, int]] = []
        self.answers: list[int] = []

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        flags, kind = frame[5], struct.unpack_from("<H", frame, 6)[0]
        session, stream = struct.unpack_from("<ii", frame, 12 if kind in (1, 5) else 8)
        self.frames.append((int(destination.rsplit(":", 1)[1]), NAMES[kind], flags, session, stream))
        if kind == layout.TYPE_RSP_SETUP:
            self.answers.append(struct.unpack_from("<i", frame, 16)[0])

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None: ...

    def command(self, name: str, detail: str, now_ns: int) -> None: ...

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None: ...


def test_a_response_channel_is_set_up_like_the_reference() -> None:
    recorder = Recorder()
    with World(1) as world:
        world.network = SimNetwork(world.rng, faults=PERFECT, instrument=recorder)
        client, server = world.add_host("client"), world.add_host("server")
        control = f"aeron:udp?control={server.address}:20126|control-mode=response"
        questions = server.aeron.add_subscription(f"aeron:udp?endpoint={server.address}:20125", ASK)
        answers = client.aeron.add_subscription(control, ANSWER)
        world.step()
        ask = client.aeron.add_exclusive_publication(
            f"aeron:udp?endpoint={server.address}:20125|response-correlation-id={answers.registration_id}", ASK
        )
        world.run_until(lambda: ask.is_connected and bool(questions.images), what="questions")
        number = questions.images[0].correlation_id
        answer = server.aeron.add_exclusive_publication(f"{control}|response-correlation-id={number}", ANSWER)
        world.run_until(lambda: answer.is_connected and answers.is_connected, what="answers")
        asking, answering = ask.session_id, answer.session_id
        interesting = [frame for frame in recorder.frames if frame[1] != "DATA"]
        # Repeated frames count only where they first occur.
        said = list(dict.fromkeys(interesting))
        source, mouth = said[2][0], said[-2][0]
        assert said == [
            (20126, "SM", 0x80, 0, 0),  # the client announces itself to any responder
            (20125, "SETUP", 0x80, asking, ASK),  # the client wants responses
            (source, "SM", 0, asking, ASK),
            (source, "RSP_SETUP", 0, asking, ASK),  # the server names the session they come from
            (20126, "SM", 0x80, answering, ANSWER),  # the client asks that session to start
            (mouth, "SETUP", 0, answering, ANSWER),
            (20126, "SM", 0, answering, ANSWER),
        ]
        assert set(recorder.answers) == {answering}
        assert source != mouth
        answers.close()
        ask.close()


def test_the_log_of_a_prototype_is_as_short_as_can_be() -> None:
    driver = InvokedDriver(term_buffer_length=1 << 20)
    channel = "aeron:udp?control=127.0.0.1:20128|control-mode=response|response-correlation-id=prototype"
    for others, length in (("", layout.TERM_MIN_LENGTH), ("|term-length=256k", 256 << 10)):
        ready = only(driver.add_publication(channel + others, exclusive=True), responses.OnExclusivePublicationReady)
        assert driver.log(ready.log_file).term_length == length
    driver.close()
