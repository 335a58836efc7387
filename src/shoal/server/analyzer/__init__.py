"""The analyzer: decrypts the reports that a relay forwards, and cannot know whose they are.

It has keys and no endpoint for reports. Devices encrypt their reports for the key of a crowd; a
relay, run by another party, waits for the crowd, shuffles its messages and forwards them in chunks.
The analyzer decrypts them when all have come, tallies them and destroys the key.

* `endpoint` takes requests for keys and chunks, from registered relays
* `store` has the transactions and the files of chunks, `plan` the crowds of one plan
* `decryption` runs processes of `worker` on all cores; `counting` turns messages into a tally
* `service` puts it together: `Analyzer`
"""
