"""What an instrument is told about a connection, and how a frame log is read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aqueduct_pair import Pair

from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.events import Attach, Mode
from mainstem.aqueduct.frames import FRAME_TYPES, decode_frame
from mainstem.aqueduct.observe import FrameLog, dump_log

if TYPE_CHECKING:
    from pathlib import Path


class Notes:
    """An Instrument that stores what it is told."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, str, str]] = []
        self.states: list[tuple[str, str, str]] = []

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        self._frame("in", source, frame)

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        self._frame("out", destination, frame)

    def _frame(self, way: str, peer: str, frame: bytes) -> None:
        decoded, end = decode_frame(frame, 0, len(frame))
        assert end == len(frame), "one frame at a time"
        self.frames.append((way, FRAME_TYPES[decoded[0]].name, peer))

    def command(self, name: str, detail: str, now_ns: int) -> None:
        raise AssertionError("Aqueduct has no commands")

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        self.states.append((subject, old, new))


def observed(*, client: object = None, server: object = None) -> Pair:
    """Return a pair with an instrument on one or both sides."""
    pair = Pair(start=False)
    for end, instrument, is_client in ((pair.client, client, True), (pair.server, server, False)):
        if instrument is not None:
            end.conn = AqueductEngine(is_client=is_client, instrument=instrument, peer="the other")  # type: ignore[arg-type]
    pair.client.conn.start(pair.now)
    pair.run()
    return pair


def exchange(pair: Pair) -> None:
    """Exchange every kind of frame that a well-behaved channel uses: all modes, an attachment, the end."""
    conn = pair.client.conn
    (inner,) = conn.send(0, b"carries", attach=[(Attach.RECEIVER, False)])
    for mode in Mode:
        for _ in range(3):
            conn.send(inner, b"tide", mode=mode)
    conn.finish(inner)
    pair.run()
    pair.receive(pair.server, 0)
    assert len(pair.payloads(pair.server, inner)) == 9
    pair.wait(2)


def test_instruments_on_both_sides_see_every_frame_and_state() -> None:
    client, server = Notes(), Notes()
    exchange(observed(client=client, server=server))
    for ours, theirs in ((client, server), (server, client)):
        sent = sorted(name for way, name, _ in ours.frames if way == "out")
        heard = sorted(name for way, name, _ in theirs.frames if way == "in" and name != "Version")
        assert sent == heard
    assert [name for way, name, _ in client.frames if way == "out"].count("Message") == 10
    assert {peer for _, _, peer in client.frames} == {"the other"}
    inner = "sender to-server/client-minted#1"
    assert [(old, new) for subject, old, new in client.states if subject == inner] == [
        ("OPEN", "FINISH_PENDING"),
        ("FINISH_PENDING", "FINISHING"),
        ("FINISHING", "FINISHED"),
    ]
    other = inner.replace("sender", "receiver")
    assert [(old, new) for subject, old, new in server.states if subject == other] == [
        ("OPEN", "FINISHING"),
        ("FINISHING", "FINISHED"),
    ]


def test_a_frame_log_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "frames.log"
    log = FrameLog(path)
    exchange(observed(client=log))
    log.close()
    with path.open() as file:
        lines = list(dump_log(file))
    text = "\n".join(lines)
    assert "> Message 0 on to-server/entrypoint" in text or "> Message 0 on" in text
    assert "attaching" in text
    assert "< AckReliable" in text
    assert "< CloseReceiver" in text
    assert "> FinishSender 7" in text or "> FinishSender 6" in text
    assert "sender to-server/client-minted#1: FINISHING → FINISHED" in text
    assert lines[0].split()[:2] == ["0.000", "ms"]
