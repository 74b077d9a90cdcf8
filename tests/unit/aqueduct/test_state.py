"""The state tables, checked pair by pair."""

from __future__ import annotations

import pytest

from mainstem.aqueduct.state import (
    RECEIVER_TABLE,
    SENDER_TABLE,
    ReceiverInput,
    ReceiverState,
    SenderInput,
    SenderState,
)


@pytest.mark.parametrize("state", list(SenderState))
@pytest.mark.parametrize("happened", list(SenderInput))
def test_ended_sender_states_are_final_and_live_ones_can_end(state: SenderState, happened: SenderInput) -> None:
    after = SENDER_TABLE.get((state, happened))
    if state.is_final:
        assert after is None
    elif happened in (SenderInput.LOSE, SenderInput.DISCONNECT):
        assert after is not None
        assert after.is_final
    elif after is not None:
        assert after.value >= state.value or happened is SenderInput.CANCEL, "no way leads back"


@pytest.mark.parametrize("state", list(ReceiverState))
@pytest.mark.parametrize("happened", list(ReceiverInput))
def test_ended_receiver_states_only_change_to_lost(state: ReceiverState, happened: ReceiverInput) -> None:
    after = RECEIVER_TABLE.get((state, happened))
    if state.is_final:
        assert after is None or (happened is ReceiverInput.LOSE and after is ReceiverState.LOST)
    elif happened in (ReceiverInput.LOSE, ReceiverInput.DISCONNECT):
        assert after is not None
        assert after.is_final


def test_every_state_is_reachable() -> None:
    senders = {SenderState.OPEN}
    receivers = {ReceiverState.OPEN}
    for _ in range(len(SenderState)):
        senders |= {after for (state, _), after in SENDER_TABLE.items() if state in senders}
        receivers |= {after for (state, _), after in RECEIVER_TABLE.items() if state in receivers}
    assert senders == set(SenderState)
    assert receivers == set(ReceiverState)
