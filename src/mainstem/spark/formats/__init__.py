"""Private: table formats with a commit log. Tasks of a micro-batch write data files, and the driver commits them.

A commit names the data files of a micro-batch, the query, and the number of the micro-batch. Readers only see files of commits. So
a repeated task or micro-batch, or a driver that ends before the commit, leaves unused files but never a duplicate row.

``data_files`` runs in the tasks, ``batch_writer`` in the driver; a module for each format has what differs between them.
"""
