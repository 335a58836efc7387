"""Prio3 of draft-irtf-cfrg-vdaf-20: sums of measurements that no aggregator sees.

Two aggregators hold secret shares of every report, check a proof that it is valid, and publish only
sums. `prio3` is the protocol, `circuits` say what a measurement is and prove that it is valid, and
`field` computes. The standard library is enough; the C kernels are faster, and their
time does not depend on secrets.
"""
