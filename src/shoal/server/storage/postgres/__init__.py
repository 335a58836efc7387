"""The data of collectors or relays in PostgreSQL, so that several on several hosts share them.

The logic is that of the store in a folder (`shoal.server.storage`, `shoal.server.relay`). Here
is what differs: `connection` speaks to the server, `ratchet` has the key that all processes know
and the database does not, `shared` the locks, `schema` the tables. `store` is the collector's
store; `moving` brings the data of a folder here. `relay_store` is the relay's, with `relay_schema`
and `relay_crowd`. `kinds` tells whose data a database holds, and `renewing` begins anew with one.
"""
