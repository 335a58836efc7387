"""The analyzer: reads what a relay forwards, and cannot know whose it is.

It is a collector with keys and without a door for reports. Devices seal their reports for the key
of a crowd; a relay, run by somebody else, waits for the crowd, shuffles its messages and forwards
them in chunks. The analyzer opens them when all have come, tallies them and destroys the key.

* `door` takes requests for keys and chunks, from relays that are registered
* `store` has the transactions, `sealed_plan` the crowds of one plan, `chunk_files` the chunks
* `opening` runs processes of `worker`, which open chunks on all cores; `spill` is what they leave
  for `counting`, which turns messages into a tally
* `service` puts it together: `Analyzer`, a `Collector`
"""
