"""Read growing recordings with Spark, and keep a count for each stream.

    python examples/spark_streaming.py DIRECTORY_OF_RECORDINGS

The directory may be from Mainstem's recorder or from Aeron Archive. A restarted query resumes where it stopped.
"""

from __future__ import annotations

import sys

from mainstem.spark import create_session
from mainstem.spark.tables import messages


def main(recordings: str) -> None:
    spark = create_session("streams")
    source = spark.readStream.format("mainstem.recording").option("maxRowsPerTrigger", 200_000).load(recordings)
    counts = messages(source).groupBy("session_id", "stream_id").count()
    query = (
        counts.writeStream.outputMode("complete")
        .format("console")
        .option("checkpointLocation", "out/streams-checkpoint")
        .start()
    )
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


if __name__ == "__main__":
    main(sys.argv[1])
