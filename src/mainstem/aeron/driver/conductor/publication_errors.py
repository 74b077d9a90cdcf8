"""ERR frames of receivers that reject a publication, and the responses to its clients (docs/protocols/aeron.md, 21).

Any host that can reach a publication's socket can send ERR frames with any text and receiver id. All clients share the to-clients
buffer, and a client that the driver laps there must close. So these responses are limited, both per source and publication and in
total. Frames beyond the limits are still counted (``ERROR_FRAMES_RECEIVED``) and recorded in the error log.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from mainstem._internal.address_prefixes import AddressPrefixes
from mainstem._internal.clock import NS_PER_SECOND
from mainstem.aeron.admission import ALL_SOURCES, RateLimit
from mainstem.aeron.command.responses import ADDRESS_IPV4, ADDRESS_IPV6, OnPublicationError
from mainstem.aeron.driver.media.addresses import InetAddress

if TYPE_CHECKING:
    from mainstem.aeron.driver.conductor.network_publication import NetworkPublications
    from mainstem.aeron.driver.conductor.resources import Resources
    from mainstem.aeron.driver.conductor_proxy import PublicationError

# Limits on responses per source and publication, as a burst and a rate per second. A single receiver causes one response. Several
# receivers on one host, or behind one gateway, cause a few.
SOURCE_BURST = 8
SOURCE_RATE = 1.0
# Length in bytes of a response with the longest text that an ERR frame can have.
MAX_RESPONSE_LENGTH = 1_152


class PublicationErrors:
    def __init__(self, resources: Resources, network: NetworkPublications) -> None:
        self._resources = resources
        self._network = network
        self._prefixes = AddressPrefixes()
        self._of_source = RateLimit(SOURCE_RATE, SOURCE_BURST)
        # Responses can fill a quarter of the buffer at once, and another quarter per client liveness timeout.
        max_responses = max(1, resources.clients.capacity // 4 // MAX_RESPONSE_LENGTH)
        liveness_s = resources.settings.client_liveness_timeout_ns / NS_PER_SECOND
        self._of_all = RateLimit(max_responses / liveness_s, max_responses)

    def on_error(self, message: PublicationError, now_ns: int) -> None:
        publication = self._network.get(message.registration_id)
        if publication is None:
            return
        source = InetAddress.unpack(message.source)
        key = (publication.registration_id, self._prefixes.prefix_of(source.ip))
        if self._of_source.take(key, now_ns) and self._of_all.take(ALL_SOURCES, now_ns):
            self._resources.clients.send(
                OnPublicationError(
                    registration_id=publication.registration_id,
                    destination_registration_id=message.destination_registration_id,
                    session_id=publication.session_id,
                    stream_id=publication.stream_id,
                    receiver_id=message.receiver_id,
                    group_tag=-1 if message.group_tag is None else message.group_tag,
                    address_type=ADDRESS_IPV6 if source.is_v6 else ADDRESS_IPV4,
                    source_port=source.port,
                    source_address=ip_address(source.ip).packed.ljust(16, b"\0"),
                    error_code=message.code,
                    message=message.text,
                )
            )
        self._resources.errors.record_peer(
            "refusal",
            source.ip,
            f"receiver {message.receiver_id} at {source} refused session {publication.session_id} of stream "
            f"{publication.stream_id} on {publication.channel}: {message.text}",
            code=message.code,
        )
