"""A publication's log, made as its channel asks; the same for IPC and for the network (aeron-behaviour §10)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mainstem.aeron.driver.conductor.publication_params import first_term_ids
from mainstem.aeron.logbuffer import LogParameters, LogType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.aeron.driver.conductor.publication_params import PublicationParams
    from mainstem.aeron.driver.conductor.stream_counters import StreamCounters
    from mainstem.aeron.driver.media.buffers import BufferLimits
    from mainstem.aeron.driver.resources import Resources
    from mainstem.aeron.logbuffer import LogBuffers


def socket_fields(limits: BufferLimits, *, sndbuf: int, rcvbuf: int) -> dict[str, Any]:
    """What a log says of its sockets' buffers: what the channel asks for, 0 for nothing, and what the system gives."""
    return {
        "socket_sndbuf_length": sndbuf,
        "os_default_sndbuf_length": limits.default_send,
        "os_max_sndbuf_length": limits.max_send,
        "socket_rcvbuf_length": rcvbuf,
        "os_default_rcvbuf_length": limits.default_receive,
        "os_max_rcvbuf_length": limits.max_receive,
    }


@contextmanager
def kept_only_if_complete(
    resources: Resources, log: LogBuffers, log_file: str, stream: StreamCounters
) -> Iterator[None]:
    """Takes log and counters back when what follows fails: counters may run out half way."""
    try:
        yield
    except BaseException:
        stream.close()
        resources.logs.delete(log, log_file)
        raise


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
            **socket_fields(resources.buffer_limits, sndbuf=params.so_sndbuf, rcvbuf=params.so_rcvbuf),
        )
    )
