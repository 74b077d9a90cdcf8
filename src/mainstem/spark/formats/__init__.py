"""Private: table formats with a commit log. The tasks of a micro-batch write data files, and the driver commits them.

A commit contains the names of the data files, the query's id, and the number of the micro-batch. Readers see only committed
files. So if a task or micro-batch is repeated, or the driver stops before the commit, unused files may remain, but no row is
duplicated.

``data_files`` runs in the tasks, and ``mainstem.spark.foreach_batch`` on the driver. Each format has a module of its own.
"""
