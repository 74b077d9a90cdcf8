"""Control frames, byte for byte."""

from __future__ import annotations

from mainstem.aeron.driver import control_frames


def test_an_eliciting_status_message_is_zero_but_for_its_ids() -> None:
    plain = control_frames.eliciting_status(0, 0, receiver_id=0x0102030405060708, group_tag=None)
    assert plain == bytes.fromhex("24000000 00 80 0300 00000000 00000000 00000000 00000000 00000000 0807060504030201")
    tagged = control_frames.eliciting_status(1, 2, receiver_id=3, group_tag=99)
    assert tagged == bytes.fromhex(
        "2c000000 00 80 0300 01000000 02000000 00000000 00000000 00000000 0300000000000000 6300000000000000"
    )
    status = control_frames.read_status(tagged)
    assert (status.session_id, status.stream_id, status.receiver_id, status.group_tag, status.flags) == (
        1,
        2,
        3,
        99,
        0x80,
    )
    assert control_frames.read_status(plain).group_tag is None


def test_an_error_frame_carries_its_text_and_perhaps_a_tag() -> None:
    made = control_frames.error_frame(1, 2, receiver_id=3, group_tag=99, code=13, text="go away")
    assert (
        made
        == bytes.fromhex("2f000000 00 08 0400 01000000 02000000 0300000000000000 6300000000000000 0d000000 07000000")
        + b"go away"
    )
    assert control_frames.read_error(made) == (1, 2, 3, 99, 13, "go away")
    untagged = control_frames.error_frame(1, 2, receiver_id=3, group_tag=None, code=13, text="x" * 2000)
    assert untagged[24:32] == b"\xff" * 8
    assert len(untagged) == 40 + 1023
    assert control_frames.read_error(untagged).group_tag is None


def test_a_round_trip_frame_is_a_request_or_an_answer() -> None:
    request = control_frames.RoundTrip(1, 2, 3, 4, 5, is_request=True)
    made = control_frames.round_trip_frame(request)
    assert made == bytes.fromhex(
        "28000000 00 80 0600 01000000 02000000 0300000000000000 0400000000000000 0500000000000000"
    )
    assert control_frames.read_round_trip(made) == request
    assert control_frames.round_trip_frame(request._replace(is_request=False))[5] == 0


def test_a_response_setup_names_the_answering_session() -> None:
    made = control_frames.response_setup_frame(1, 2, -3)
    assert made == bytes.fromhex("14000000 00 00 0b00 01000000 02000000 fdffffff")
    assert control_frames.read_response_setup(made) == (1, 2, -3)
    assert control_frames.frame_type(made) == 11


def test_reads_a_setup() -> None:
    setup = bytes.fromhex("28000000 00 40 0500 20000000 01000000 02000000 03000000 04000000 00000100 80050000 05000000")
    assert control_frames.read_setup(setup) == (32, 1, 2, 3, 4, 65_536, 1_408, 5, 0x40)
