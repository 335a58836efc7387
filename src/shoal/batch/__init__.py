"""The same verbs for more than one process holds: many files, tables of others, Spark.

    `tallying`       `tally_files`: reports in many files to one Tally
    `randomizing`    `randomize_files`: answers in many files to a folder of reports
    `tables`         `tally_table` and `randomize_table`: pandas, polars, Arrow, anything with the
                     Arrow C stream interface
    `spark`          `tally` and `randomize` on a Spark cluster
    `staging`        a folder that appears whole, once, whatever attempts were made to write it
    `pool`           processes that work on pieces, and end with the one that started them
    `journal`        what is done, on disk, so that a killed run goes on where it stopped
    `inputs`         files and folders as they are named, and whether they changed

Nothing is imported here: whoever counts loads nothing of the device.
"""
