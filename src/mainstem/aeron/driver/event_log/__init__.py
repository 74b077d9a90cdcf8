"""The event log: lines for frames, commands, responses and changes (docs/protocols/aeron.md, 24, 25)."""
