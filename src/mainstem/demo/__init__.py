"""Private: the demonstration, a real table, published over a lossy network, recorded, analysed with Spark, every row checked."""
