"""The command REJECT_IMAGE: a subscriber rejects an image, and the publisher gets the reason (docs/protocols/aeron.md, 21)."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.command.commands import MAX_REASON_LENGTH
from mainstem.aeron.command.error_code import ErrorCode
from mainstem.aeron.command.responses import ADDRESS_IPV4, OnOperationSuccess, OnPublicationError
from mainstem.errors import RegistrationError

if TYPE_CHECKING:
    from mainstem.aeron.command.commands import RejectImage
    from mainstem.aeron.driver.conductor.image_links import ImageLinks
    from mainstem.aeron.driver.conductor.ipc_publication import IpcPublication, IpcPublications
    from mainstem.aeron.driver.conductor.publication_image import Images
    from mainstem.aeron.driver.conductor.resources import Resources

# Placeholders for IPC, whose subscribers have no receiver id, group tag or address.
NO_ID = -1
LOOPBACK = IPv4Address("127.0.0.1").packed.ljust(16, b"\0")


class ImageRejection:
    """The handler of REJECT_IMAGE. It identifies an image by correlation id, or over IPC by the publication's registration id."""

    def __init__(self, resources: Resources, ipc: IpcPublications, images: Images, links: ImageLinks) -> None:
        self._resources = resources
        self._ipc = ipc
        self._images = images
        self._links = links

    def reject(self, command: RejectImage, now_ns: int) -> None:
        length = len(command.reason.encode("utf-8", "surrogateescape"))
        if length > MAX_REASON_LENGTH:
            raise RegistrationError(
                f"Invalidation reason must be {MAX_REASON_LENGTH} bytes or less (got {length}): "
                f"image {command.image_correlation_id} was not rejected",
                code=ErrorCode.GENERIC_ERROR,
            )
        image = self._images.find(command.image_correlation_id)
        publication = self._ipc.find(command.image_correlation_id)
        if image is not None:
            self._resources.receiver.reject_image(image.receiver_image, command.reason)
        elif publication is not None:
            self._reject_ipc(publication, command.reason, now_ns)
        else:
            raise RegistrationError(
                f"Unable to resolve image for correlationId={command.image_correlation_id}: there is no such image",
                code=ErrorCode.GENERIC_ERROR,
            )
        self._resources.count(SystemCounter.IMAGES_REJECTED)
        self._resources.clients.send(OnOperationSuccess(correlation_id=command.correlation_id))

    def _reject_ipc(self, publication: IpcPublication, reason: str, now_ns: int) -> None:
        self._resources.clients.send(
            OnPublicationError(
                registration_id=publication.registration_id,
                destination_registration_id=NO_ID,
                session_id=publication.session_id,
                stream_id=publication.stream_id,
                receiver_id=NO_ID,
                group_tag=NO_ID,
                address_type=ADDRESS_IPV4,
                source_port=0,
                source_address=LOOPBACK,
                error_code=ErrorCode.IMAGE_REJECTED,
                message=reason,
            )
        )
        self._resources.errors.record(
            f"a subscriber of this driver refused session {publication.session_id} of stream {publication.stream_id} "
            f"on {publication.channel}: {reason}",
            code=ErrorCode.IMAGE_REJECTED,
        )
        self._links.on_lingering(publication)
        self._links.unlink_all(publication)
        publication.cool_down_until_ns = now_ns + self._resources.settings.image_liveness_timeout_ns
