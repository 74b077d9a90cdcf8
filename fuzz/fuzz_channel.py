"""Channel URIs: any text is a channel with a value for each parameter, or refused by an error that names the location."""

from __future__ import annotations

from contextlib import suppress

from mainstem.aeron.channel import ChannelUri, check_channel
from mainstem.errors import ChannelUriError

NAMES = [name for name in dir(ChannelUri) if isinstance(getattr(ChannelUri, name), property)]
NAMES += [name for name, value in vars(ChannelUri).items() if type(value).__name__ == "Value"]
CHECKS = ("check_udp", "check_timestamps", "check_ats", "check_destination")
SEEDS = [
    text.encode()
    for text in (
        "aeron:ipc?term-length=64k|alias=one",
        "aeron:udp?endpoint=127.0.0.1:40123|interface=localhost/24|mtu=1408|term-length=16m|session-id=-7",
        "aeron:udp?endpoint=[ff02::1]:40456|interface=[::1]/64|ttl=4|group=true|fc=min,g:99/3,t:5s|cc=cubic",
        "aeron:udp?control=localhost:40124|control-mode=dynamic|tags=1,2|linger=5s|rejoin=false|tether=false",
        "aeron-spy:aeron:udp?endpoint=localhost:0|so-sndbuf=2m|so-rcvbuf=2m|rcv-wnd=128k|eos=true|sparse=true|ssc=true",
        "aeron:udp?endpoint=h:1|init-term-id=5|term-id=6|term-offset=64|nak-delay=1ms|max-resend=16|fc=tagged,g:7",
        "aeron:udp?control-mode=manual|session-id=tag:3|media-rcv-ts-offset=reserved|channel-snd-ts-offset=8",
        "aeron:udp?endpoint=h:1|control-mode=response|response-correlation-id=prototype|stream-id=3|pub-wnd=1g",
    )
]


def target(data: bytes) -> None:
    """Process one input."""
    text = data.decode(errors="surrogateescape")
    with suppress(ChannelUriError):
        check_channel(text)
    try:
        uri = ChannelUri.parse(text)
    except ChannelUriError as error:
        assert str(error)
        return
    assert str(ChannelUri.parse(str(uri))) == str(uri), "a channel does not come back as it was"
    for name in NAMES:
        with suppress(ChannelUriError):
            getattr(uri, name)
    for name in CHECKS:
        with suppress(ChannelUriError):
            getattr(uri, name)()
