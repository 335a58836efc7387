"""From randomized reports to counts with intervals. Tallying never imports `device/`.

Reports to a tally
    `report_files`         batches of reports, and files larger than memory, as arrays
    `count_table`          set bits by position, and all counts of a tally in one array
    `tally`, `tally_json`  synthetic vectors to a `Tally`; tallies add; reading one back
    `crowds`               which crowds a tally holds, and whether one person may be in several
    `screening`            traces of fake reports

A tally to estimates
    `estimates`            a tally to `Estimates`
    `intervals`            exact, normal, simultaneous and Chebyshev intervals of a count
    `contrasts`            differences, totals and ratios of estimates
    `trends`               several crowds side by side
    `number_summary`       mean and quantiles of numbers
    `joint`                combinations of bits: counted, refused under view counts, estimated
    `association`          whether two answers go together; `association_tables`, `independence`
    `cross_tables`         the cells of crossed questions, with totals, shares and a test
    `text/`                which texts a crowd answered
    `result_tables`        results as plain text, Arrow, pandas and polars
"""
