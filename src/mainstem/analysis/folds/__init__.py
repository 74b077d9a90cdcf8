"""Private: what happened on one stream, frame by frame: pure functions that carry a state, shared by batch and streaming.

A fold takes the frames of one key in the order of time, in pieces of any size, and returns rows. Its rows do not depend on
where the pieces were cut: that is why a table is the same in batch and in streaming. ``mainstem.spark.fold_frames``
runs a fold over a DataFrame.
"""
