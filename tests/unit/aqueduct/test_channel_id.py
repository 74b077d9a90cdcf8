"""Channel ids: four facts in 64 bits."""

from __future__ import annotations

import pytest

from mainstem.aqueduct.channel_id import MAX_INDEX, Minter, describe, make_channel_id
from mainstem.errors import LocalProtocolError


def test_an_id_has_direction_minter_oneshot_and_index_from_the_lowest_bit_on() -> None:
    assert make_channel_id(0, to_client=False, minted_by_server=False) == 0
    assert make_channel_id(0, to_client=True, minted_by_server=False) == 1
    assert make_channel_id(0, to_client=False, minted_by_server=True) == 2
    assert make_channel_id(0, to_client=False, minted_by_server=False, oneshot=True) == 4
    assert make_channel_id(MAX_INDEX, to_client=True, minted_by_server=True, oneshot=True) == 2**64 - 1


def test_refuses_an_index_beyond_61_bits() -> None:
    with pytest.raises(LocalProtocolError):
        make_channel_id(MAX_INDEX + 1, to_client=False, minted_by_server=False)


def test_a_client_begins_behind_the_entrypoint_and_counts_in_each_space() -> None:
    minter = Minter(is_client=True)
    assert [minter.mint(outgoing=True, oneshot=False) for _ in range(2)] == [8, 16]
    assert [minter.mint(outgoing=False, oneshot=False) for _ in range(2)] == [1, 9]
    assert minter.mint(outgoing=True, oneshot=True) == 4
    assert minter.mint(outgoing=False, oneshot=True) == 5


def test_a_server_begins_at_zero_everywhere() -> None:
    minter = Minter(is_client=False)
    assert [minter.mint(outgoing=True, oneshot=False), minter.mint(outgoing=False, oneshot=False)] == [3, 2]
    assert [minter.mint(outgoing=True, oneshot=True), minter.mint(outgoing=False, oneshot=True)] == [7, 6]


def test_describes_an_id_for_people() -> None:
    assert describe(0) == "entrypoint"
    assert describe(100) == "to-server/client-minted/oneshot#12"
    assert describe(3) == "to-client/server-minted#0"
