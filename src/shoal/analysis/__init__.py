"""From randomized reports to published counts. Nothing here ever sees an answer.

In the order of the data's way:

Reading reports
    `report_rows`       batches of reports as arrays
    `report_files`      reports in files larger than memory, read chunk by chunk

Counting reports
    `bit_counter`       set bits by position, over packed rows
    `joint_counts`      combinations of chosen bits
    `count_table`       all counts of a tally in one array, in a fixed order
    `tallying`          Synthetic vectors to a `Tally`; tallies add
    `adding`            the sums of what they hold
    `views`             what the view of a plan lets a tally hold
    `crowds`            which crowds a tally holds, and whether one person may be in several
    `tally_json`        a tally read back from its file, every count checked

Looking for fake reports
    `screening`         a tally to a `Screening`
    `screening_tests`   its tests, one family for each kind of trace

Estimating
    `estimating`        a tally to `Estimates`
    `frames`            results as tables of Arrow, pandas and polars
    `intervals`         the intervals of a count: exact, normal, simultaneous, Chebyshev
    `limits`            one-sided exact limits, of one count and of two together
    `contrasts`         differences, totals and ratios of estimates
    `joint`             estimates of combinations of answers
    `association/`      whether two answers go together
    `cross_tables`      the cells of crossed questions, with totals, shares and a test
    `text/`             which texts a crowd answered

Handing it on
    `publishing/`       estimates to a page, tables and files, with the certificate
"""
