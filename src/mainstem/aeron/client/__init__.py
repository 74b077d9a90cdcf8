"""Private: Aeron's client, which attaches to a driver through shared memory. Users import its names from ``mainstem``."""

from __future__ import annotations

from mainstem._core.log.append import BufferClaim
from mainstem._core.log.assemble import FragmentAssembler
from mainstem._core.log.fragment import Fragment, Header
from mainstem._core.log.read import Message
from mainstem.aeron.client.client import Aeron, connect
from mainstem.aeron.client.context import ClientContext
from mainstem.aeron.client.counter import Counter
from mainstem.aeron.client.offer_status import Action, OfferStatus
from mainstem.aeron.client.operation import Operation
from mainstem.aeron.client.poller import Poller
from mainstem.aeron.client.publication import ExclusivePublication, Publication
from mainstem.aeron.client.requester import Request, Requester, Responder
from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.client.stats import (
    ClientStats,
    ImageStats,
    PublicationStats,
    RequesterStats,
    ResponderStats,
    SubscriptionStats,
)
from mainstem.aeron.client.subscription import Image, Subscription

__all__ = [
    "Action",
    "Aeron",
    "BufferClaim",
    "ClientContext",
    "ClientSettings",
    "ClientStats",
    "Counter",
    "ExclusivePublication",
    "Fragment",
    "FragmentAssembler",
    "Header",
    "Image",
    "ImageStats",
    "Message",
    "OfferStatus",
    "Operation",
    "Poller",
    "Publication",
    "PublicationStats",
    "Request",
    "Requester",
    "RequesterStats",
    "Responder",
    "ResponderStats",
    "Subscription",
    "SubscriptionStats",
    "connect",
]
