"""Private: Aeron Archive's control protocol."""
