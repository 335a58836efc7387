"""The analyzer: decrypts the reports that a relay forwards, and cannot know whose they are.

Devices encrypt their reports for the key of a crowd; a relay, run by another party, waits for the
crowd, shuffles its messages and forwards them in chunks. The analyzer decrypts them when all have
arrived, tallies them and destroys the key.
"""
