"""The demonstration: a real table, published over a lossy network, recorded, analysed with Spark, and checked row for row."""
