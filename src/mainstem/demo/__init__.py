"""Private: the demo. Publishes a real table over a lossy network, records it, analyzes it with Spark, and checks every row."""
