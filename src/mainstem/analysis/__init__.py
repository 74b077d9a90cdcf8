"""Private: captures and recordings as tables, as a verdict in words, and as one HTML page."""
