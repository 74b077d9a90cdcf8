"""Private: what happened on one stream, frame by frame, as pure functions over a state, for batch and streaming.

A fold takes the frames of one key in order of time, in pieces of any size, and returns rows. The rows do not depend on where the
pieces were cut, so a table is the same in batch and in streaming. ``mainstem.spark.fold_frames`` runs a fold over a DataFrame.
"""
