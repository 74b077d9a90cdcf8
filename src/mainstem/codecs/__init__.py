"""Codecs convert payloads to rows and columns, and back. Other packages add codecs as entry points of ``mainstem.codecs``."""

from mainstem.codecs.base import Codec, RowCodec
from mainstem.codecs.decoded import Decoded
from mainstem.codecs.lookup import codec_names, find_codec

__all__ = ["Codec", "Decoded", "RowCodec", "codec_names", "find_codec"]
