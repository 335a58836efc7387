"""Estimates to something to hand on: one page, tables, files; certificate included.

`publish` gives a `Publication`; ``publication.write("report.html")`` picks the form by the suffix.
`notebook_html` is the short form that notebooks show.

In the order of the data's way:

`publication`      a tally to a `Publication`: estimates, plan and certificate together
`sums`             what holds for the sum of several crowds
`words`            the sentences and numbers that every form shows
`observers`        who sees what, as a table
`markup`           HTML and SVG in which every text from a survey is escaped
`charts`, `bars`   one question as a picture (SVG): unbiased, or as shares that add to 100 %
`lines`            several crowds as a picture
`shares`           shares of a whole, rounded so that they add to 100 %
`matrices`         a cross table; `word_lists`: decoded text
`results`          numbers, cross tables and texts as one document
`sections`         one question in the form of its kind
`crowd_parts`      one crowd, a trend, a difference: what the console and files both show
`page`             the whole page, and the short form for notebooks
`site`             a folder of pages for several crowds
`tables`           CSV, Arrow and Markdown

A page makes no request to anywhere, runs no script, and shows the numbers of its JSON: every text
from a survey passes through `markup`, which escapes whatever is not markup already.
"""

from shoal.reports.page import notebook_html
from shoal.reports.publication import Publication, publish

__all__ = ["Publication", "notebook_html", "publish"]
