"""The modules that users can import. The reference pages, the docstring test and the docs all use this list.

A module's public names are those in its ``__all__`` or, without one, those that it defines without a leading underscore. All
other modules are private: they can move or disappear in any release.
"""

from __future__ import annotations

# Module: the name of its page in docs/reference/, and its purpose.
PUBLIC = {
    "mainstem": ("mainstem", "Aeron: the media driver and the client, poll, blocking and batch"),
    "mainstem.aio": ("aio", "Aeron for asyncio; what never waits is the same class as in `mainstem`"),
    "mainstem.aeron.driver.settings": ("driver-settings", "the settings of a media driver"),
    "mainstem.settings": ("settings-origins", "settings that remember where they come from"),
    "mainstem.errors": ("errors", "every error that Mainstem raises"),
    "mainstem.bymux": ("bymux", "many streams over one byte stream"),
    "mainstem.bymux.aio": ("bymux-aio", "bymux for asyncio"),
    "mainstem.jmux": ("jmux", "requests and responses over one byte stream"),
    "mainstem.jmux.aio": ("jmux-aio", "Jmux for asyncio"),
    "mainstem.aqueduct": ("aqueduct", "message channels through message channels, over QUIC"),
    "mainstem.aqueduct.aio": ("aqueduct-aio", "Aqueduct for asyncio"),
    "mainstem.duologue": ("duologue", "a server with a private channel to each client, over Aeron"),
    "mainstem.duologue.aio": ("duologue-aio", "duologues for asyncio"),
    "mainstem.archive": ("archive", "record, list and replay with an Aeron Archive"),
    "mainstem.archive.server": ("archive-server", "an archive for Aeron's own clients, without a JVM"),
    "mainstem.archive.aio": ("archive-aio", "the client of an Aeron Archive for asyncio"),
    "mainstem.recording": ("recording", "streams recorded to segments, read by position, replayed"),
    "mainstem.recording.aio": ("recording-aio", "persistent subscriptions for asyncio"),
    "mainstem.capture": ("capture", "packet captures as rows of frames"),
    "mainstem.codecs": ("codecs", "payloads to rows and columns, and back"),
    "mainstem.spark": ("spark", "sources, sinks and sessions for PySpark"),
    "mainstem.spark.tables": ("spark-tables", "tables over recordings and captures"),
    "mainstem.spark.foreach_batch": ("spark-foreach-batch", "micro-batches into tables and sinks of your own, once"),
    "mainstem.metrics": ("metrics", "counters for monitoring systems: of drivers, of a program's servers and clients"),
    "mainstem.instruments": ("instruments", "hooks that observe a protocol engine"),
    "mainstem.message_keys": ("message-keys", "drop duplicates that a sink sent"),
    "mainstem.sim": ("sim", "the deterministic simulator"),
}

# `mainstem` has too many names for one page. Its errors are on the page of `mainstem.errors`.
MAINSTEM_PAGES = {
    "client": (
        "the media driver and the connection to it",
        ("MediaDriver", "connect", "Aeron", "ClientContext", "ClientSettings", "ClientStats", "Counter", "Operation"),
    ),
    "publications": (
        "sending",
        ("Publication", "ExclusivePublication", "BufferClaim", "OfferStatus", "PublicationStats"),
    ),
    "subscriptions": (
        "receiving",
        (
            *("Subscription", "Image", "Poller", "Message", "Fragment", "FragmentAssembler", "Action"),
            *("SubscriptionStats", "ImageStats"),
        ),
    ),
    "aeron-requests": (
        "requests and responses",
        ("Requester", "Responder", "Request", "RequesterStats", "ResponderStats"),
    ),
}
ELSEWHERE = {"aio": "aio", "Recordings": "recording", "open_recordings": "recording"}

# Types in public signatures that no public module exports. They are documented on a separate page.
SIGNATURE_TYPES = (
    "mainstem._core.log.fragment.Header",
    "mainstem._core.log.read.ImageReader",
    "mainstem._core.memory.buffer.AtomicBuffer",
    "mainstem._core.memory.counters.CountersReader",
    "mainstem._internal.clock.Clock",
    "mainstem._internal.opening.Opening",
    "mainstem.aeron.command.responses.OnPublicationError",
    "mainstem.aeron.counters.ChannelStatus",
    "mainstem.aeron.driver.context.DriverContext",
    "mainstem.aeron.driver.media.addresses.InetAddress",
    "mainstem.aeron.driver.media.addresses.NetworkInterface",
    "mainstem.aeron.driver.media.transport.BufferLimits",
    "mainstem.aeron.driver.media.transport.OpenTransport",
    "mainstem.aeron.driver.media.transport.TransportRequest",
    "mainstem.aeron.files.Files",
    "mainstem.aeron.tools.snapshot.Snapshot",
    "mainstem.analysis.folds.fold.Fold",
    "mainstem.aqueduct.certificates.CertificateFiles",
    "mainstem.aqueduct.frames.Headers",
    "mainstem.aqueduct.connection.HeaderSource",
    "mainstem.aqueduct.quic.udp.Address",
    "mainstem.aqueduct.quic.tickets.Promises",
    "mainstem.aqueduct.serializers.AttachFunction",
    "mainstem.aqueduct.serializers.DetachFunction",
    "mainstem.aqueduct.server.Handler",
    "mainstem.bymux.blocking.ConnectionHandler",
    "mainstem.bymux.blocking.Handler",
    "mainstem.capture.schema.Column",
    "mainstem.mux.transports.Publication",
    "mainstem.mux.transports.Subscription",
    "mainstem.recording.archive.Archive",
    "mainstem.recording.identity.RecordingIdentity",
    "mainstem.recording.index.RecordingIndex",
    "mainstem.recording.life.StreamLife",
    "mainstem.recording.protocols.RecordableSubscription",
    "mainstem.recording.reader.MappedRange",
    "mainstem.recording.reader.Progress",
    "mainstem.recording.replayer.Replayed",
    "mainstem.recording.replayer.SupportsSend",
    "mainstem.recording.shipping.status.ShippingStatus",
    "mainstem.recording.writer.RecordingWriter",
    "mainstem.sim.network.SimSocket",
    "mainstem.sim.schedule.Plan",
    "mainstem.sim.schedule.Schedule",
    "mainstem.sim.wire.WireChecker",
    "mainstem.spark.lags.Lag",
    "mainstem.spark.sources.skip_report.Skipped",
    "mainstem.store.disk.Disk",
)
