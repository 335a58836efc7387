"""Pages, charts, tables and files from estimates, each with the plan and its certificate.

`publish` returns a `Publication`; ``publication.write("report.html")`` picks the format by the
suffix.

`publication`   a tally to a `Publication`, and what a notebook shows of any result
`page`          pages from templates: one publication, a site of several crowds
`sections`      the values that templates show
`protection`    what protects one person's answer, in words and numbers
`formatting`    numbers, short sentences, rows of tables
`charts`, `svg`   pictures in SVG; `plots` draws others with matplotlib

A page makes no request and runs no script. Templates escape every text.
"""

from shoal.errors import missing_extra

try:
    from shoal.reports.publication import Publication, publish
except ModuleNotFoundError as error:
    raise missing_extra(error, "shoal.reports") from None

__all__ = ["Publication", "publish"]
