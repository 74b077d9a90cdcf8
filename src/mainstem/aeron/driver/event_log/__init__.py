"""The event log of frames, commands, responses and state changes (docs/protocols/aeron.md, 24, 25)."""
