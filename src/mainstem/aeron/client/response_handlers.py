"""How the client handles each response (docs/protocols/aeron.md, 6)."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from mainstem.aeron.client.subscription import SubscriptionBase
from mainstem.aeron.command import responses
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.errors import ClientTimeout, CorruptLogError, RegistrationError

if TYPE_CHECKING:
    from mainstem.aeron.client.registry import ClientRegistry


def handle(client: ClientRegistry, response: responses.Response) -> None:
    """Handle one response. Every client reads all responses and skips those with the ids of other clients."""
    _handle(response, client)


@singledispatch
def _handle(response: responses.Response, client: ClientRegistry) -> None:
    correlation_id = getattr(response, "correlation_id", None)
    if correlation_id is not None:
        client.complete(correlation_id, response)


@_handle.register(responses.OnError)
def _on_error(response: responses.OnError, client: ClientRegistry) -> None:
    offending_id = response.offending_correlation_id
    if response.code is ErrorCode.CHANNEL_ENDPOINT_ERROR:
        # For this error code, the id is that of the endpoint's status counter.
        resources = [r for r in client.resources.values() if r.channel_status_id == offending_id]
        if resources:
            message = f"{resources[0]!r}: {response.message}"
            error = RegistrationError(message, code=response.error_code, correlation_id=offending_id)
            client.guard(client.context.on_error, error)
        return
    client.abandoned.pop(offending_id, None)
    operation = client.pending.pop(offending_id, None)
    if operation is not None:
        message = f"the driver refused {operation.what}: {response.message} ({response.code.name})"
        operation.fail(RegistrationError(message, code=response.error_code, correlation_id=offending_id))


@_handle.register(responses.OnAvailableImage)
def _on_available_image(response: responses.OnAvailableImage, client: ClientRegistry) -> None:
    subscription = client.resources.get(response.subscription_registration_id)
    if not isinstance(subscription, SubscriptionBase):
        return
    if any(image.correlation_id == response.image_correlation_id for image in subscription.images):
        return
    # As in the reference, the image is not rejected: that would take the stream from the driver's other subscriptions, too.
    lost = f"{subscription!r} does not receive session {response.session_id}, and may stall its publisher until it is closed"
    try:
        log = client.map_log(response.log_file)
    except OSError as error:
        # Often, the driver has deleted the log already.
        client.guard(client.context.on_error, OSError(error.errno, f"{lost}: {error.strerror}", response.log_file))
        return
    try:
        with client.naming_log(log, response.log_file):
            image = subscription._image_kind(
                subscription,
                log,
                client.cnc.counters_values,
                response.subscriber_position_id,
                response.source_identity,
                response.log_file,
                client.cnc.start_timestamp_ms,
            )
    except CorruptLogError as error:
        corrupt = CorruptLogError(f"{lost}: {error}", log_file=error.log_file, position=error.position)
        client.guard(client.context.on_error, corrupt)
        return
    if subscription.on_available_image is not None:
        client.guard(subscription.on_available_image, image)
    if subscription.closed:
        client.release_image(image)
    else:
        subscription._add_image(image)


@_handle.register(responses.OnUnavailableImage)
def _on_unavailable_image(response: responses.OnUnavailableImage, client: ClientRegistry) -> None:
    subscription = client.resources.get(response.subscription_registration_id)
    if not isinstance(subscription, SubscriptionBase):
        return
    image = subscription._remove_image(response.image_correlation_id)
    if image is not None:
        client.release_image(image)
        if subscription.on_unavailable_image is not None:
            client.guard(subscription.on_unavailable_image, image)


@_handle.register(responses.OnCounterReady)
def _on_counter_ready(response: responses.OnCounterReady, client: ClientRegistry) -> None:
    client.complete(response.correlation_id, response)
    handler = client.context.on_available_counter
    if handler is not None:
        client.guard(handler, client.counters, response.correlation_id, response.counter_id)


@_handle.register(responses.OnUnavailableCounter)
def _on_unavailable_counter(response: responses.OnUnavailableCounter, client: ClientRegistry) -> None:
    handler = client.context.on_unavailable_counter
    if handler is not None:
        client.guard(handler, client.counters, response.registration_id, response.counter_id)


@_handle.register(responses.OnClientTimeout)
def _on_client_timeout(response: responses.OnClientTimeout, client: ClientRegistry) -> None:
    if response.client_id == client.client_id and not client.closed:
        client.terminate(ClientTimeout("the driver timed this client out: it received no heartbeat in time"))


@_handle.register(responses.OnPublicationError)
def _on_publication_error(response: responses.OnPublicationError, client: ClientRegistry) -> None:
    ours = any(
        getattr(resource, "original_registration_id", None) == response.registration_id
        for resource in client.resources.values()
    )
    handler = client.context.on_publication_error
    if ours and handler is not None:
        client.guard(handler, response)
