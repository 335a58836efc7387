"""From randomized reports to counts with intervals. Tallying never imports `device/`.

Reports to a tally: `report_files`, `count_table`, `tally`, `tally_json`, `crowds`; `screening`
looks for fake reports. A tally to results: `estimates` with `intervals`, `contrasts`, `trends` and
`number_summary`; `joint`, `association` and `cross_tables` for answers that go together; `text/`.
"""
