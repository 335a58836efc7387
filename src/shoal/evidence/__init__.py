"""Proof that the rest does what it says: simulation, studies, audits from outside, the papers.

It may import anything, and nothing imports it.
"""
