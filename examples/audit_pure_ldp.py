"""Audit the RAPPOR client of pure-ldp 1.2.0, which never turns a 1 into a 0.

Run ``shoal audit --randomizer audit_pure_ldp:randomizer --q 0.25 --flags 16`` in this folder.
"""

from pure_ldp.frequency_oracles.rappor import RAPPORClient

Q = 0.25

client = RAPPORClient(f=2 * Q, m=16, hash_funcs=[], num_of_cohorts=1)


def randomizer(row):
    """Randomize one row of bits with the client's own perturbation."""
    return client._perturb(list(row))
