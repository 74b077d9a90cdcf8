"""The blocking and the asyncio client have the same public names, but for what one of them cannot have."""

from __future__ import annotations

import pytest

import mainstem

CALLS = {
    "add_destination",
    "async_add_destination",
    "remove_destination",
    "channel_status",
    "channel_status_id",
    "local_addresses",
}
# These never wait, or lay open the client's inside: `sync` of the asyncio object has them.
OFFERS = {
    *CALLS,
    *("append_padding", "offer_arrow", "offer_columns", "offer_many", "offer_parts", "try_claim", "offer_error"),
    *("available_window", "initial_term_id", "max_payload_length", "max_possible_position", "mtu", "position_limit"),
    *("term_length", "detach", "is_closed", "original_registration_id", "revoke"),
}
BLOCKING_ONLY = {
    "Aeron": {
        *("add_static_counter", "async_add_counter", "async_add_exclusive_publication", "async_add_publication"),
        *("async_add_subscription", "attached", "connect", "context", "counters", "invoke", "next_correlation_id"),
        "next_session_id",
    },
    "ExclusivePublication": OFFERS | {"offer_block"},
    "Publication": OFFERS,
    "Poller": {"is_finished", "raise_failure", "take_messages"},
    "Subscription": {
        *CALLS,
        *(
            "add_image",
            "block_poll",
            "controlled_poll",
            "has_data",
            "image_by_session_id",
            "images",
            "is_end_of_stream",
        ),
        *("open_images", "poll", "poll_arrow", "poll_bytes", "poll_messages", "poll_with_metadata", "raise_failure"),
        *("reject_image", "remove_image", "set_images", "take_messages", "taken_messages", "wait_for_data"),
    },
}
ASYNCIO_ONLY = {
    "Aeron": {"sync"},
    "ExclusivePublication": {"sync"},
    "Publication": {"sync"},
    "Responder": {"handling"},
    "Subscription": {"sync", "next_arrow"},
}
CLASSES = [name for name in mainstem.aio.__all__ if isinstance(getattr(mainstem.aio, name), type)]


def public(kind: type) -> set[str]:
    annotated = {name for each in kind.__mro__ for name in vars(each).get("__annotations__", ())}
    return {name for name in {*dir(kind), *annotated} if not name.startswith("_")}


@pytest.mark.parametrize("name", CLASSES)
def test_both_variants_have_the_same_public_names(name: str) -> None:
    blocking, asynchronous = (public(getattr(package, name)) for package in (mainstem, mainstem.aio))
    assert blocking - asynchronous == BLOCKING_ONLY.get(name, set())
    assert asynchronous - blocking == ASYNCIO_ONLY.get(name, set())


@pytest.mark.parametrize("name", CLASSES)
def test_both_variants_have_a_repr_of_their_own(name: str) -> None:
    for package in (mainstem, mainstem.aio):
        assert getattr(package, name).__repr__ is not object.__repr__
