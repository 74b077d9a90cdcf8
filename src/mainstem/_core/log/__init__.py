"""Log buffers: appending to terms, reading them, batches of messages and columns of frames."""
