"""Private: tables of formats with a log of commits, written by the tasks of a micro-batch and committed by the driver.

A micro-batch becomes data files, each with a name of its own, and one commit that names them together with the query and the
number of the micro-batch. A reader sees the files of commits only. So a task that is repeated, a driver that ends between files and
commit, and a micro-batch that Spark runs again leave files that no reader sees, and no row twice.

``data_files`` runs in the tasks, ``batch_writer`` in the driver; a module for each format has what differs between them.
"""
