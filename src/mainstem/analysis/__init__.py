"""Private: turns captures and recordings into tables, a verdict in words, and one HTML page."""
