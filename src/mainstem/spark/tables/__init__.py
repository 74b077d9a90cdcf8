"""Tables as DataFrame functions: typed, documented, the same in batch and streaming."""

from mainstem.spark.tables.messages import messages

__all__ = ["messages"]
