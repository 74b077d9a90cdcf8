"""Private: reconstructs what happened on one stream, frame by frame, as pure functions over a state.

A fold takes the frames of one key in order of time, in batches of any size, and returns rows. The rows do not depend on how the
frames are batched, so a table is the same in batch and in streaming. ``mainstem.spark.fold_frames`` runs a fold over a DataFrame.
"""
