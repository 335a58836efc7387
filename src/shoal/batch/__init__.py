"""Many files, all cores, tables of other libraries, Spark.

    `tally_files`       reports in many files to one Tally
    `randomize_files`   answers in many files to a folder of reports
    `tables`            `tally_table` and `randomize_table`: pandas, polars, Arrow
    `spark`             `tally` and `randomize` on a Spark cluster
    `jobs`              what they share: named inputs, a journal on disk, worker processes

Nothing is imported here: tallying never imports `device/`.
"""
