"""The relay: accepts encrypted reports, waits for a crowd, shuffles it, and forwards it complete.

The relay knows who sends and cannot read; the analyzer reads and does not know who sent. A complete
crowd is *frozen* in a transaction: from then on nothing changes who is in it. `shuffled_chunks`
shuffles its messages and stores them, and `forwarding` sends them until the analyzer has signed for
all of them.
"""
