"""A publication's log, made as its channel asks; the same for IPC and for the network (aeron-behaviour §10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.driver.publication_params import first_term_ids
from mainstem.aeron.logbuffer import LogParameters, LogType

if TYPE_CHECKING:
    from mainstem.aeron.driver.publication_params import PublicationParams
    from mainstem.aeron.driver.resources import Resources
    from mainstem.aeron.logbuffer import LogBuffers


def create_publication_log(
    resources: Resources,
    params: PublicationParams,
    *,
    registration_id: int,
    session_id: int,
    stream_id: int,
    is_exclusive: bool,
) -> tuple[LogBuffers, str]:
    """The log and its path. Raises StorageSpaceError when there is too little room for it."""
    initial, first, offset = first_term_ids(params, resources.random)
    return resources.logs.create_publication(
        LogParameters(
            correlation_id=registration_id,
            session_id=session_id,
            stream_id=stream_id,
            initial_term_id=initial,
            start_term_id=first,
            start_term_offset=offset,
            log_type=LogType.EXCLUSIVE_PUBLICATION if is_exclusive else LogType.CONCURRENT_PUBLICATION,
            page_size=resources.settings.file_page_size,
            **params.log_fields(),
        )
    )
