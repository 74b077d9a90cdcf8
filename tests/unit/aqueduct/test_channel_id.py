"""Channel ids: four values packed into 64 bits."""

from __future__ import annotations

from mainstem.aqueduct.engine import AqueductEngine
from mainstem.aqueduct.frames import describe


def test_client_ids_start_after_the_entrypoint_in_each_space() -> None:
    minter = AqueductEngine(is_client=True)
    assert [minter.channels.mint(outgoing=True, oneshot=False) for _ in range(2)] == [8, 16]
    assert [minter.channels.mint(outgoing=False, oneshot=False) for _ in range(2)] == [1, 9]
    assert minter.channels.mint(outgoing=True, oneshot=True) == 4
    assert minter.channels.mint(outgoing=False, oneshot=True) == 5


def test_server_ids_start_at_zero_in_each_space() -> None:
    minter = AqueductEngine(is_client=False)
    assert [
        minter.channels.mint(outgoing=True, oneshot=False),
        minter.channels.mint(outgoing=False, oneshot=False),
    ] == [3, 2]
    assert [minter.channels.mint(outgoing=True, oneshot=True), minter.channels.mint(outgoing=False, oneshot=True)] == [
        7,
        6,
    ]


def test_an_id_has_a_readable_description() -> None:
    assert describe(0) == "entrypoint"
    assert describe(100) == "to-server/client-minted/oneshot#12"
    assert describe(3) == "to-client/server-minted#0"
