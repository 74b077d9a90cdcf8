"""Bugs in how streams, duologues and connections end."""

from __future__ import annotations

from tests.mutants.bug import Bug, Suite

BUGS = (
    Bug(
        name="the end of a dead client's stream looks like an orderly end",
        harm="half of an upload looks complete, because the driver ended the stream of a client that was killed",
        file="duologue/streams.py",
        old="        if has_ended and has_left and not self._says_end:\n",
        new="        if has_ended:\n",
        finder=Suite(selection=("tests/unit/duologue/test_orderly_ends.py",)),
    ),
    Bug(
        name="a closed publication counts as back pressure",
        harm="a bymux connection over Aeron waits for a heartbeat, or forever, after its path has gone",
        file="mux/transports.py",
        old="        if status == layout.OFFER_CLOSED:\n",
        new="        if status == layout.OFFER_CLOSED and self._closing:\n",
        finder=Suite(
            selection=("tests/system/test_bymux_over_aeron.py::test_a_final_status_of_an_offer_is_a_lost_connection",)
        ),
    ),
    Bug(
        name="the end of the peer's stream counts as silence",
        harm="a read of a bymux stream over Aeron waits forever for a peer that was killed",
        file="mux/transports.py",
        old="            return not (self._image.closed or self._image.is_end_of_stream)\n",
        new="            return not subscription.closed\n",
        finder=Suite(
            selection=(
                "tests/system/test_bymux_over_aeron.py::test_a_dead_path_is_a_lost_connection_without_any_heartbeat",
            )
        ),
    ),
)
