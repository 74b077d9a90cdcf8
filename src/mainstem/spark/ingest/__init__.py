"""Private: loads recordings or a live channel into a table, once or continuously. Each message is loaded exactly once.

The table is partitioned by ``date`` and ``stream_id``. It also has the columns ``recording_id``, ``session_id``, ``position``,
``recorded_at`` and ``problem``, the codec's columns, ``rescued`` and ``payload``. It contains every message:

- If the codec cannot read a message, if a value has another type than its column, or if the message has no rows, the message
  becomes a row with the reason in ``problem``, its bytes in ``payload``, and nulls in the codec's columns.
- Fields that the schema lacks go to ``rescued``, as JSON.

When an ingest restarts, it uses the table's columns. It refuses other columns unless ``evolve`` allows adding them.
"""
