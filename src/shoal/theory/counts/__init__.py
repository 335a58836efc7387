r"""The counts view: what a release of counts, and of nothing else, tells about a person.

A release in this view holds, for each bit, how many of N reports set it. Nothing links the bits.

*Theorem.* Let two answers differ in at most d bits, and let ``delta*(lam)`` be the largest hockey
stick ``H_lam`` of one bit's count over all crowds and both orders of the pair (`profile`). Let (P,
Q) be any pair of measures with ``H_lam(P||Q) >= delta*(lam)`` for every lam >= 0. Then the release
is (eps, delta) differentially private, replace-one, for every collection, with
``delta = H_(e^eps)(P^d||Q^d)``.

*Proof.* Every bit of every person has a coin of its own, so given the collection the counts of
different bits are independent. Bits in which the two answers agree have the same law on both sides
and drop out. The count of a bit that differs is one of the pairs over which delta* is the
supremum: the others hold k ones, for some k that the collection decides, and the record goes from 0
to 1 or from 1 to 0. Which way does not matter, since both orders are in the supremum; nor does it
matter that k is another one for each bit. Dominating pairs compose (Zhu, Dong and Wang 2022; proof
in `theory.composition`). Fewer than d bits are post-processing of d. QED

A pair that dominates both orders has ``delta*(lam) = 1 - lam + lam delta*(1/lam)`` for lam < 1:
the mirrored half. It is part of the pair, since a sum of losses may need losses below 0.

What d is: `domains.differing_bits`. Flags L, choice and number 2, at most k of K min(2k, K);
questions add. Colluders: N - t.

* `law`: the noise of one bit's count, far into its tail;
* `curve`: hockey sticks of one crowd for all lam, from above, and its losses from below;
* `profile`: the largest over all crowds, by branch and bound; `theory.composition` adds d bits up;
* `delta`: `counts_delta`, attack and proven; `cohort_crowd` for text with cohorts;
* `solve`: `counts_q`, `counts_crowd`, `counts_epsilon`.
"""
