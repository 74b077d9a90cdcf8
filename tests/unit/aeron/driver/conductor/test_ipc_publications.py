"""IPC through the conductor: commands, responses, and the life of publications."""

from __future__ import annotations

import struct

import pytest
from tests.support.invoked_driver import CLIENT, DIRECTORY, InvokedDriver, count, only

from mainstem.aeron.command import commands, responses
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.error_log import read_errors

IPC = "aeron:ipc"


def test_announces_the_clients_heartbeat_before_its_first_answer(driver: InvokedDriver) -> None:
    found = driver.add_publication(IPC)
    assert [type(response) for response in found] == [responses.OnCounterReady, responses.OnPublicationReady]
    heartbeat = only(found, responses.OnCounterReady)
    assert heartbeat.correlation_id == CLIENT
    assert driver.counters.label(heartbeat.counter_id) == f"client-heartbeat: id={CLIENT}"
    assert driver.counters.value(heartbeat.counter_id) == driver.clock.epoch_ms()


def test_answers_a_publication_byte_for_byte(driver: InvokedDriver) -> None:
    ready = only(driver.add_publication(IPC), responses.OnPublicationReady)
    type_id, payload = driver.records[-1]
    path = f"{DIRECTORY}/publications/{ready.correlation_id}.logbuffer".encode()
    assert type_id == 0x0F03
    assert (
        payload
        == struct.pack(
            "<qqiiiii",
            ready.correlation_id,
            ready.correlation_id,
            ready.session_id,
            1001,
            ready.position_limit_id,
            -1,
            len(path),
        )
        + path
    )


def test_links_a_subscription_and_a_publication_whichever_comes_first(driver: InvokedDriver) -> None:
    subscription = only(driver.add_subscription(IPC), responses.OnSubscriptionReady)
    assert subscription.channel_status_id == -1
    found = driver.add_publication(IPC)
    assert [type(response) for response in found] == [responses.OnPublicationReady, responses.OnAvailableImage]
    image = only(found, responses.OnAvailableImage)
    assert image.subscription_registration_id == subscription.correlation_id
    assert image.source_identity == "aeron:ipc"
    later = driver.add_subscription(IPC)
    assert [type(response) for response in later] == [responses.OnSubscriptionReady, responses.OnAvailableImage]


def test_gives_every_counter_of_a_stream_its_key_and_label(driver: InvokedDriver) -> None:
    subscription = only(driver.add_subscription(IPC), responses.OnSubscriptionReady)
    found = driver.add_publication(IPC)
    ready, image = only(found, responses.OnPublicationReady), only(found, responses.OnAvailableImage)
    labels = driver.labels()
    stream = f"{ready.correlation_id} {ready.session_id} 1001 {IPC}"
    assert f"pub-pos (concurrent): {stream}" in labels.values()
    assert labels[ready.position_limit_id] == f"pub-lmt: {stream}"
    assert labels[image.subscriber_position_id] == (
        f"sub-pos: {subscription.correlation_id} {ready.session_id} 1001 {IPC} @0"
    )
    key = driver.counters.key(ready.position_limit_id)
    assert key == struct.pack("<qiii", ready.correlation_id, ready.session_id, 1001, len(IPC)) + IPC.encode().ljust(
        92, b"\0"
    )
    assert driver.counters.reference_id(image.subscriber_position_id) == ready.correlation_id
    assert driver.counters.owner_id(image.subscriber_position_id) == CLIENT


def test_connects_and_opens_the_limit_once_subscribed(driver: InvokedDriver) -> None:
    ready = only(driver.add_publication(IPC), responses.OnPublicationReady)
    log = driver.log(ready.log_file)
    assert (log.is_connected, driver.counters.value(ready.position_limit_id)) == (False, 0)
    subscription = only(driver.add_subscription(IPC), responses.OnSubscriptionReady)
    assert log.is_connected
    assert driver.counters.value(ready.position_limit_id) == log.term_length // 2
    driver.ask(
        commands.RemoveSubscription(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=subscription.correlation_id
        )
    )
    assert not log.is_connected


def test_shares_a_publication_until_the_last_registration_is_gone(driver: InvokedDriver) -> None:
    first = only(driver.add_publication(IPC), responses.OnPublicationReady)
    second = only(driver.add_publication(IPC), responses.OnPublicationReady)
    assert second.original_registration_id == first.correlation_id
    assert second.correlation_id != first.correlation_id
    assert second.log_file == first.log_file
    log = driver.log(first.log_file)
    for ready in (first, second):
        assert log.end_of_stream_position == (1 << 63) - 1
        done = only(
            driver.ask(
                commands.RemovePublication(
                    client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
                )
            ),
            responses.OnOperationSuccess,
        )
        assert done.correlation_id > ready.correlation_id
    assert log.end_of_stream_position == 0


def test_exclusive_publications_have_their_own_logs_and_sessions(driver: InvokedDriver) -> None:
    one = only(driver.add_publication(IPC, exclusive=True), responses.OnExclusivePublicationReady)
    two = only(driver.add_publication(IPC, exclusive=True), responses.OnExclusivePublicationReady)
    assert one.log_file != two.log_file
    assert one.session_id != two.session_id


def test_keeps_a_drained_publication_for_its_linger_and_then_deletes_the_log(driver: InvokedDriver) -> None:
    driver.add_subscription(IPC)
    ready = only(driver.add_publication(IPC), responses.OnPublicationReady)
    remove = commands.RemovePublication(
        client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
    )
    found = driver.ask(remove) + driver.run(1.1)
    gone = only(found, responses.OnUnavailableImage)
    assert gone.image_correlation_id == ready.correlation_id
    assert driver.files.exists(ready.log_file)
    driver.run(4.0)
    assert driver.files.exists(ready.log_file)
    driver.run(3.0)
    assert not driver.files.exists(ready.log_file)
    assert ready.position_limit_id not in driver.labels()


def test_a_draining_publication_is_joined_while_another_subscriber_still_reads_it(driver: InvokedDriver) -> None:
    reader = only(driver.add_subscription(IPC), responses.OnSubscriptionReady)
    found = driver.add_publication(IPC)
    ready, image = only(found, responses.OnPublicationReady), only(found, responses.OnAvailableImage)
    log = driver.log(ready.log_file)
    log.buffer.add_i64(log.metadata_offset, 64)
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    joined = only(driver.add_subscription(IPC), responses.OnAvailableImage)
    assert joined.subscription_registration_id != reader.correlation_id
    assert driver.counters.value(joined.subscriber_position_id) == 0
    driver.counters.cell(image.subscriber_position_id).set_release(64)
    assert count(driver.run(1.1), responses.OnUnavailableImage) == 0
    driver.counters.cell(joined.subscriber_position_id).set_release(64)
    assert count(driver.add_subscription(IPC), responses.OnAvailableImage) == 0
    assert count(driver.run(1.1), responses.OnUnavailableImage) == 2


def test_revoking_disconnects_subscribers_at_once(driver: InvokedDriver) -> None:
    driver.add_subscription(IPC)
    ready = only(driver.add_publication(IPC), responses.OnPublicationReady)
    log = driver.log(ready.log_file)
    found = driver.ask(
        commands.RemovePublication(
            client_id=CLIENT,
            correlation_id=driver.next_id(),
            registration_id=ready.correlation_id,
            flags=commands.REVOKE,
        )
    )
    assert count(found, responses.OnUnavailableImage) == 1
    assert log.is_publication_revoked
    assert driver.counters.value(40) == 1


def test_starts_a_stream_where_the_channel_says(driver: InvokedDriver) -> None:
    channel = "aeron:ipc?term-length=64k|init-term-id=5|term-id=9|term-offset=96"
    ready = only(driver.add_publication(channel, exclusive=True), responses.OnExclusivePublicationReady)
    position = 4 * 65536 + 96
    assert driver.log(ready.log_file).producer_position == position
    assert driver.counters.value(ready.position_limit_id) == position
    image = only(driver.add_subscription(IPC), responses.OnAvailableImage)
    assert driver.counters.value(image.subscriber_position_id) == position


@pytest.mark.parametrize("key", ["mtu=4096", "term-length=128k", "session-id=11"])
def test_refuses_to_share_with_other_parameters(driver: InvokedDriver, key: str) -> None:
    driver.add_publication("aeron:ipc?session-id=10|mtu=1408|term-length=64k")
    error = only(driver.add_publication(f"aeron:ipc?{key}"), responses.OnError)
    assert error.code is ErrorCode.INVALID_CHANNEL
    assert key.split("=")[0] in error.message


def test_refuses_a_session_id_that_is_taken(driver: InvokedDriver) -> None:
    driver.add_publication("aeron:ipc?session-id=10", exclusive=True)
    error = only(driver.add_publication("aeron:ipc?session-id=10", exclusive=True), responses.OnError)
    assert error.code is ErrorCode.INVALID_CHANNEL
    assert "clashing sessionId=10" in error.message


def test_matches_subscriptions_by_session(driver: InvokedDriver) -> None:
    driver.add_subscription("aeron:ipc?session-id=5")
    assert count(driver.add_publication("aeron:ipc?session-id=6", exclusive=True), responses.OnAvailableImage) == 0
    assert count(driver.add_publication("aeron:ipc?session-id=5", exclusive=True), responses.OnAvailableImage) == 1


def test_rejection_unlinks_ipc_subscribers_for_a_while(driver: InvokedDriver) -> None:
    driver.add_subscription(IPC)
    found = driver.add_publication(IPC)
    image = only(found, responses.OnAvailableImage)
    found = driver.ask(
        commands.RejectImage(
            client_id=CLIENT,
            correlation_id=driver.next_id(),
            image_correlation_id=image.image_correlation_id,
            position=0,
            reason="out of tune",
        )
    )
    error = only(found, responses.OnPublicationError)
    assert (error.code, error.message, error.source) == (ErrorCode.IMAGE_REJECTED, "out of tune", "127.0.0.1:0")
    assert count(found, responses.OnUnavailableImage) == 1
    assert count(found, responses.OnOperationSuccess) == 1
    (recorded,) = read_errors(driver.cnc.error_log)
    assert recorded.text.startswith("(-13) image rejected: ")
    assert recorded.text.endswith(": out of tune")
    assert count(driver.run(9.0), responses.OnAvailableImage) == 0
    assert count(driver.run(3.0), responses.OnAvailableImage) == 1


def test_unblocks_a_publication_whose_producer_died(driver: InvokedDriver) -> None:
    driver.add_subscription(IPC)
    found = driver.add_publication(IPC)
    ready = only(found, responses.OnPublicationReady)
    log = driver.log(ready.log_file)
    # A claim of 128 bytes whose length never becomes positive, as a killed producer leaves it.
    log.buffer.add_i64(log.metadata_offset, 128)
    log.buffer.put_i32_release(0, -128)
    driver.run(14.0)
    assert log.buffer.get_i32(0) == -128
    driver.run(4.0)
    assert (log.buffer.get_i32(0), log.buffer.get_u16(6)) == (128, 0)
    assert driver.counters.value(19) == 1


def test_an_untethered_subscriber_that_falls_behind_rests_and_rejoins(driver: InvokedDriver) -> None:
    slow = only(
        driver.add_subscription("aeron:ipc?tether=false|alias=slow"),
        responses.OnSubscriptionReady,
    )
    driver.add_subscription(IPC)
    found = driver.add_publication(IPC)
    ready = only(found, responses.OnPublicationReady)
    images = {
        response.subscription_registration_id: response
        for response in found
        if isinstance(response, responses.OnAvailableImage)
    }
    log = driver.log(ready.log_file)
    fast_id = next(image.subscriber_position_id for key, image in images.items() if key != slow.correlation_id)
    # The producer has filled the window. The tethered reader has read all of it, the other one nothing.
    window = log.term_length // 2
    log.buffer.add_i64(log.metadata_offset, window)
    driver.counters.cell(fast_id).set_release(window)
    assert count(driver.run(4.0), responses.OnUnavailableImage) == 0
    gone = only(driver.run(3.0), responses.OnUnavailableImage)
    assert gone.subscription_registration_id == slow.correlation_id
    # The reader still counts while it lingers; then the limit moves on without it.
    assert driver.counters.value(ready.position_limit_id) == window
    driver.run(6.0)
    assert driver.counters.value(ready.position_limit_id) == 2 * window
    back = only(driver.run(11.0), responses.OnAvailableImage)
    assert back.subscription_registration_id == slow.correlation_id
    assert driver.counters.value(back.subscriber_position_id) == window


def test_a_sleeping_untethered_subscriber_does_not_keep_a_stream_from_ending(driver: InvokedDriver) -> None:
    driver.add_subscription("aeron:ipc?tether=false")
    found = driver.add_publication(IPC)
    ready = only(found, responses.OnPublicationReady)
    log = driver.log(ready.log_file)
    log.buffer.add_i64(log.metadata_offset, 64)
    driver.ask(
        commands.RemovePublication(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=ready.correlation_id
        )
    )
    # The driver drops the reader after the untethered window limit timeout, and not before.
    assert count(driver.run(4.0), responses.OnUnavailableImage) == 0
    assert count(driver.run(3.0), responses.OnUnavailableImage) == 1


def test_an_untethered_subscriber_that_does_not_rejoin_loses_its_counter(driver: InvokedDriver) -> None:
    slow = only(driver.add_subscription("aeron:ipc?tether=false|rejoin=false"), responses.OnSubscriptionReady)
    driver.add_subscription(IPC)
    found = driver.add_publication(IPC)
    ready = only(found, responses.OnPublicationReady)
    images = {
        response.subscription_registration_id: response.subscriber_position_id
        for response in found
        if isinstance(response, responses.OnAvailableImage)
    }
    log, slow_id = driver.log(ready.log_file), images.pop(slow.correlation_id)
    log.buffer.add_i64(log.metadata_offset, log.term_length // 2)
    driver.counters.cell(*images.values()).set_release(log.term_length // 2)
    assert count(driver.run(12.0), responses.OnUnavailableImage) == 1
    assert slow_id not in driver.labels()
    # The next subscriber may get the counter, so neither the end of the subscription nor that of the stream frees it again.
    again = only(driver.add_subscription(IPC), responses.OnAvailableImage)
    assert again.subscriber_position_id == slow_id
    driver.ask(
        commands.RemoveSubscription(
            client_id=CLIENT, correlation_id=driver.next_id(), registration_id=slow.correlation_id
        )
    )
    driver.run(1.0)
    assert driver.labels()[slow_id].startswith("sub-pos")
    assert log.is_connected


def test_a_position_that_a_publication_has_by_default_may_be_asked_for(driver: InvokedDriver) -> None:
    ready = only(driver.add_publication(IPC), responses.OnPublicationReady)
    initial = driver.log(ready.log_file).initial_term_id
    start = f"{IPC}?init-term-id={initial}|term-id={initial}|term-offset="
    assert only(driver.add_publication(start + "0"), responses.OnPublicationReady).log_file == ready.log_file
    assert count(driver.add_publication(start + "64"), responses.OnError) == 1
