"""Private: what captures and recordings show, as tables, as a verdict in words, and as one HTML page."""
