"""Verify a document of `shoal audit --json`: `python verify_certificate.py FILE`.

Needs python-flint, and no code of Shoal. Exit code 0: the claim is proven (accepted). 1: it is not
(refused). 2: the file is invalid, or of a kind that is not covered (declined).
*Claim.* Of `crowd_size` = n people each bit is flipped with probability q. Whatever the others
answer, and whichever answer x one changes to x', P_x'[event] <= e^epsilon P_x[event] + delta for
every event of what is seen: all reports without senders (view reports), or how many reports set
each bit (view counts). `domain` lists blocks: bits, and the fewest and most that an answer sets.
These decimals are verified, `local` too; delta, or `proven` if smaller, up to a factor 1 + SLACK.
*Covered.* Flags, exactly k and at most k of K bits, several blocks; several reports of a person. In
the view counts also releases with fresh flips, cohorts, leader and helper with a `max_weight`.
*Declined*: noise of aggregators, whole reports with cohorts or several releases, too many terms.
*Proof.* p = 1 - q, theta = p/q, lam = e^epsilon, H(P, Q) = sum_v (P(v) - lam Q(v))_+; the claim is
H <= delta. Post-processing never raises H. Numbers are balls of Arb or whole numbers rounded to the
safe side; floats only choose parameters, and the bounds hold for all choices.
1. Alone (`alone`). Others are post-processing of one report, of whose D differing bits i speak for
   x' with ratio theta^(2i-D), and weight C(D,i) q^i p^(D-i) under x.
2. Blanket (Balle, Bell, Gascon, Nissim 2019, Lemmas 5.3, 5.4). If m(v) <= p(v|y) for all y, then H
   <= E[(Y_1 + ... + Y_n)_+] / n, Y = (p(v|x') - lam p(v|x)) / m(v) with mass m(v), else 0. Blocks
   multiply. A set bit of y costs a factor theta where v is 0 and gains one where v is 1, so min_y
   p(v|y) = p(v|0) theta^floor (`table`); smaller is m = p(v|0) theta^-high (`loose`).
3. Worst pair. If (F, G) is exchangeable and F' ~ F, then Fa - Gb is larger in convex order than
   F'(a - b): given {F, G} = {s, t}, means agree and half-widths are |s-t|(a+b)/2, |s-t||a-b|/2. So
   bits in which x, x' agree make way for bits in which they differ: flags differ everywhere, sets
   of given sizes overlap least. If loose, bits are independent and E_m[theta^(2v-1)] = E_m[1], so
   one more set bit is a spread: disjoint largest sets are worst. Every block is a part of flags.
4. Stop-loss (`stop_loss`). (a) S is the sum, Z normal: E(S)_+ <= E(S+sZ)_+ by Jensen, less
   P[all Y are 0] s / sqrt(2 pi). The excess is int_0^s t f_t(0) dt <= s^2 f_s(0), f_t the density
   of S + tZ, as f_t <= (s/t) f_s. (b) g(x) = e^(cx) E(S+sZ-x)_+ has transform M(z)/z^2 at z = c+iv,
   M = E[e^(zY)]^n e^(s^2 z^2/2). Poisson: sum_k g(kT) = sum_j M/z^2 / T at v = 2 pi j/T. As g >= 0,
   the right side bounds g(0) = E(S+sZ)_+; without 1/z^2 it bounds f_s(0). A geometric series bounds
   the rest. (c) From below: g(kT) <= e^((c-b)kT) M(b)/(b e), b > 0, as y_+ <= e^(by-1)/b.
5. One bit's count (`curve`). k others hold 1, l hold 0; b is the pmf of Y = Bin(l,q) - Bin(k,q), T
   its tail. With 1 added the count has p b(t-1) + q b(t), with 0 q b(t-1) + p b(t). b is
   log-concave, so the ratio rises and H = max_t F_t, F_t = A b(t-1) - (lam-1) T(t), A = p - lam q;
   F_t >= F_t+1, ... if A b(t-1) >= (A+lam-1) b(t). Lower bounds of b that lack e in all are right
   up to e, and each t passed over costs at most 2 lam e.
6. All crowds (`largest`). One more person is post-processing: for k in [k1, k2] H is at most that
   of k1 ones and n-1-k2 zeros. Largest values at lam_j, joined by chords, bound the largest H over
   crowds and both orders, which is convex in lam; across lam = 1 chords go from 1/lam_j to lam_j.
7. Composition (`counts`; Zhu, Dong, Wang 2022). Counts of bits are independent, D bits differ. The
   masses whose H are the chords (second differences, mirrored for lam < 1, infinite loss last)
   dominate one bit, sums of D independent losses the release. More mass only raises the bound.
8. Prices (`bounds`). r reports of a person: sum_(i<r) e^(i eps/r) delta(eps/r). Cut bits: t people
   whose reports overflow with chance tau, that of the largest answer, cost (1+lam) t tau. Cohorts:
   1 + Bin(n-1, 1/m) people share one: P[fewer than t] + delta_t. Fewer people t hide less.
"""

import functools
import itertools
import json
import math
import sys
from fractions import Fraction

from flint import acb, acb_mat, arb, arb_poly, ctx, fmpz_poly

NUMBERS = "crowd_size", "relies_on", "reports_per_person", "releases", "cohorts"
METHODS = ("local", "exact over m", "blanket", "composed over bits", "adapted blankets")
UNITS, TINY, ctx.prec = 200, 60, 160  # whole numbers are probabilities in units of 2^-UNITS
SLACK, ONE, ZERO = Fraction(1, 5000), 1 << UNITS, arb(0)


def ball(x):
    return arb(Fraction(x).numerator) / Fraction(x).denominator


def units(x):  # rounded down
    return int((x * ONE).lower().floor().unique_fmpz())


def alone(differ, q, epsilon):
    total, p, theta = ZERO, ball(1 - q), ball(1 / q - 1)
    for i in range(differ + 1):
        gap = (theta ** (2 * i - differ) - ball(epsilon).exp()).upper()
        total += math.comb(differ, i) * ball(q) ** i * p ** (differ - i) * max(gap, ZERO)
    return total


def table(block, size, other_size, q, loose=False):  # m by powers of p(v|x')/m and p(v|x)/m
    bits, low, high = block
    both = max(0, size + other_size - bits)
    groups = (both, size - both, other_size - both, bits - size - other_size + both)
    found = {}
    for ones in itertools.product(*(range(n + 1) for n in groups)):
        zeros = bits - sum(ones)
        floor = -high if loose else low - 2 * zeros if zeros < low else -min(high, zeros)
        towards = 2 * (ones[0] + ones[2]) - other_size - floor
        away = 2 * (ones[0] + ones[1]) - size - floor
        mass = math.prod(map(math.comb, groups, ones)) * ball(q) ** (sum(ones) - floor)
        mass *= ball(1 - q) ** (zeros + floor)
        found[towards, away] = found.get((towards, away), ZERO) + mass
    return found


def blanket(blocks, n, q, epsilon, target):
    parts, wide, classes = [], 0, 1
    for bits, low, high in sorted(blocks, key=lambda block: block[2] - block[1]):
        kinds = (high - low + 1) ** 2
        if high - low < bits and classes * kinds <= 16:
            sizes, classes = itertools.product(range(low, high + 1), repeat=2), classes * kinds
            parts.append([table((bits, low, high), s, t, q) for s, t in sizes])
        elif 2 * high <= bits:
            parts.append([table((2 * high, low, high), high, high, q, loose=True)])
        else:
            wide += bits
    parts.append([table((wide, 0, wide), 0, wide, q)])
    ends, theta, lam = [(ZERO, ZERO)], ball(1 / q - 1), ball(epsilon).exp()
    for tables in itertools.product(*parts):
        masses = {(0, 0): arb(1)}
        for found in tables:
            pairs, masses = itertools.product(masses.items(), found.items()), {}
            for ((a, b), mass), ((c, d), more) in pairs:
                masses[a + c, b + d] = masses.get((a + c, b + d), ZERO) + mass * more
        atoms = [(mass, theta**a - lam * theta**b) for (a, b), mass in masses.items()]
        if all(y <= 0 for _, y in atoms) or all(a <= b for a, b in masses):
            continue
        for kappa in (0.02, 0.006, 0.0015, 0.0003, 0.0001):
            low, high = stop_loss(atoms, n, kappa)
            if high <= target or low > target:
                break
        ends.append((low, high))
    return tuple(map(max, *ends, ends[0])) if all(x >= 0 for x in sum(ends, ())) else (ZERO, arb(1))


def stop_loss(atoms, n, kappa):  # bounds of E[(Y_1 + ... + Y_n)_+] / n; s is kappa / c
    atoms = [*atoms, (1 - sum((m for m, _ in atoms), ZERO), ZERO)]
    points = [(float(m), float(y)) for m, y in atoms]

    def cumulant(b):
        return n * math.log1p(max(sum(m * math.expm1(b * y) for m, y in points), 1e-15 - 1))

    grid = (math.exp(i / 20 - 14) / max(y for _, y in points) for i in range(400))
    c = min(grid, key=lambda b: cumulant(b) - 2 * math.log(b))  # about where M(c)/c^2 is smallest
    bend = max(cumulant(c * 1.001) - 2 * cumulant(c) + cumulant(c * 0.999), 0) * 1e6 + 2
    size = cumulant(c) - math.log(c * bend / kappa**2) - 6  # of what copies may add
    period = max((cumulant(b) - math.log(b) - size) / abs(b - c) for b in (0.7 * c, 1.3 * c))
    count = math.ceil(4.5 * c / kappa * period / (2 * math.pi)) + 1
    if count * len(atoms) > 10**8:
        raise NotImplementedError("a sum has too many terms")
    means = [(b, sum(m * (b * y).exp() for m, y in atoms)) for b in map(arb, (c, c * 0.7, c * 1.3))]
    (c, mean), period, low = means[0], arb(period), ZERO
    for b, other in means[1:]:
        ratio, s = (-abs(b - c) * period).exp(), arb(kappa) / c
        low -= other**n * ((s * b) ** 2 / 2 - 1).exp() / b * ratio / (1 - ratio)
    step, width = 2 * arb.pi() / period, math.isqrt(count) + 1  # z = c + i step (i + j width)
    turns = [(m * (c * y).exp() / mean, acb(0, step * y)) for m, y in atoms]
    left = acb_mat([[(i * turn).exp() for _, turn in turns] for i in range(width)])
    right = [[m * (j * width * turn).exp() for j in range(width)] for m, turn in turns]
    values, total, density = (left * acb_mat(right)).table(), ZERO, ZERO
    for j, z in enumerate(acb(c, step * j) for j in range(count)):
        term = values[j % width][j // width] ** n * (z * z * s * s / 2).exp() * (2 if j else 1)
        total, density = total + (term / (z * z)).real, density + term.real
    v, scale = step * (count - 1), mean**n / period
    rest = 2 * ((c * c - v * v) * s * s / 2).exp() / ((s * s * v * step).exp() - 1)
    low += scale * (total - rest / (v * v) - s * s * (density + rest))
    high = scale * (total + rest / (v * v)) - atoms[-1][0] ** n * s / (2 * arb.pi()).sqrt()
    return max((low / n).lower(), ZERO), (high / n).upper()


@functools.lru_cache(maxsize=20_000)
def binomial(n, q):  # lower bounds of P[Bin(n, q) = j] in units, and the first j
    (a, b), first = q.as_integer_ratio(), int((n + 1) * q)
    ways = arb(n + 1).lgamma() - arb(first + 1).lgamma() - arb(n - first + 1).lgamma()
    down = [units((ways + first * ball(q).log() + (n - first) * ball(1 - q).log()).exp())]
    up, last = down[:], first
    while last < n and up[-1] >> TINY:
        up.append(up[-1] * (n - last) * a // ((last + 1) * (b - a)))
        last += 1
    while first and down[-1] >> TINY:
        down.append(down[-1] * first * (b - a) // ((n - first + 1) * a))
        first -= 1
    return down[:0:-1] + up, first


def count_pmf(ones, zeros, q):  # the same of the number of 1s that these people show
    (plus, first), (minus, least) = binomial(zeros, q), binomial(ones, q)
    both = (fmpz_poly(plus) * fmpz_poly(minus[::-1])).coeffs()
    return [int(x) >> UNITS for x in both], first + ones - least - len(minus) + 1


def curve(ones, zeros, q, lams):  # upper bounds of H at rising lams, all in units
    pmf, t, values = [0, *count_pmf(ones, zeros, q)[0], 0], 0, []  # pmf[t] is b(t-1)
    lack, tails = ONE - sum(pmf), [*itertools.accumulate(pmf[:0:-1])][::-1]
    top, slack, (a, b) = len(pmf) - 2, 2 * (len(pmf) + 2) * (ONE - sum(pmf)), q.as_integer_ratio()
    for lam in lams:
        gain, more = (b - a) * ONE - lam * a, lam - ONE  # b A and lam - 1
        while t < top and gain * pmf[t] < (gain + more * b) * (pmf[t + 1] + lack):
            t += 1
        value = gain * (pmf[t] + lack) // b - more * tails[t] + slack * lam
        values.append((value >> UNITS) + 2 if gain > 0 else 0)
    return values


@functools.lru_cache(maxsize=64)
def largest(others, q, lams, enough, cut):  # largest H of all crowds, up to `enough` and `cut`
    settled, best = [0] * len(lams), [0] * len(lams)
    stretches, tries = [(0, others)], {0, others // 2, others}
    while stretches:
        for ones in tries:  # only decides which bounds are near enough
            best = list(map(max, best, curve(ones, others - ones, q, lams)))
        limits = [cut + factor * value for factor, value in zip(enough, best, strict=True)]
        cuts, tries = [], []
        for low, high in stretches:
            values = curve(low, others - high, q, lams)
            excess = max(value / limit for value, limit in zip(values, limits, strict=True))
            if excess <= 1 or low == high:
                settled = list(map(max, settled, values))
            else:
                tries.append((excess, (low + high) // 2))
                edges = [low + (high + 1 - low) * i // 4 for i in range(5)]
                cuts += [(a, b - 1) for a, b in itertools.pairwise(edges) if a < b]
        stretches, tries = cuts, {ones for _, ones in sorted(tries)[-8:]}
    return settled


def counts(differ, n, q, epsilon, target, tolerance, per):
    width = min((1 - 2 * q) / math.sqrt((n - 1) * q * (1 - q) + 0.25), math.log((1 - q) / q))
    cut = ONE >> (20 + per // 32 - math.floor(math.log2(max(float(target), 1e-30) / differ)))
    step, m, ends = Fraction(int(width / per * 2**80), 2**80), 64, (0, n // 2, n - 1)
    while max(curve(k, n - 1 - k, q, [units(ball(m * step).exp())])[0] for k in ends) > cut // 4:
        m += m // 8
    lams = [ball(j * step).exp() for j in range(m + 1)]
    squares = (j * j / per**2 for j in range(m + 1))
    enough = (1 + tolerance * (2 + x + 7 * math.exp(-4 * x)) for x in squares)
    h = largest(n - 1, q, tuple(map(units, lams)), tuple(enough), cut)
    points = [(x, ball(Fraction(y, ONE))) for x, y in zip(lams, h, strict=True)]
    points[0] = 1, min(y if x == 1 else ((x - 1 + 2 * y) / (x + 1)).upper() for x, y in points)
    slopes = [(d - b) / (c - a) for (a, b), (c, d) in itertools.pairwise(points)]
    masses, (_, first), (_, last) = [ZERO] * (2 * m + 1), points[0], points[-1]
    for j, (low, high) in enumerate(itertools.pairwise([first - 1 - slopes[0], *slopes, ZERO])):
        masses[m - j] = max((high - low).upper(), ZERO)
        masses[m + j] = masses[m - j] * lams[j]
    delta, lam = (sum(masses) + last) ** differ - sum(masses) ** differ, ball(epsilon).exp()
    for j, mass in enumerate((arb_poly(masses) ** differ).coeffs(), -m * differ):
        delta += mass * (1 - lam / ball(j * step).exp()) if j * step > epsilon else 0
    return delta.upper()


def bounds(claim):
    n, t, reports, releases, cohorts = whole = [claim[name] for name in NUMBERS]
    q, epsilon, delta = (claim[name] + Fraction() for name in ("q", "epsilon", "delta"))
    blocks, dropped, view = list(map(tuple, claim["domain"])), claim["dropped"], claim["view"]
    valid = 0 < q <= 0.5 and epsilon >= 0 <= delta <= 1 and {int} == {*map(type, whole)} and blocks
    if not (valid and min(whole) > 0 and t <= n and all(0 <= a <= b <= k for k, a, b in blocks)):
        raise ValueError("a number is out of range")
    other = {"reports": dropped or cohorts * releases > 1, "counts": dropped and cohorts > 1}
    noise, method = (claim["parties"] or {}).get("noise"), claim["proven"]["method"]
    if noise or other[view] or method not in METHODS:
        raise NotImplementedError("this kind of plan is not covered")
    epsilon, lam = epsilon / reports, ball(epsilon / reports).exp()
    reach = (max(min(u, 2 * k - u) for u in range(2 * a, 2 * b + 1)) for k, a, b in blocks)
    differ, factor = releases * sum(reach), sum(lam**i for i in range(reports))
    target = (ball(delta * (1 + SLACK)) / factor).lower()
    low, high = ZERO, alone(differ, q, epsilon).upper()
    if not releases * ball(claim["local"]["epsilon"] + 0) >= differ * ball(1 / q - 1).log():
        return low, arb("inf")  # no delta makes up for another false number
    if view == "counts" and high > target:
        (bits, _, most), price = map(sum, zip(*blocks, strict=True)), ZERO
        if dropped:
            pmf, first = count_pmf(most, bits - most, q)
            fit = sum(pmf[: max(dropped["max_weight"] + 1 - first, 0)])
            price = (1 + lam) * t * releases * ball(1 - Fraction(fit, ONE))
        elif cohorts > 1:
            pmf, first = binomial(n - 1, Fraction(1, cohorts))
            price = releases * ball(1 - Fraction(sum(pmf[max(t - 1 - first, 0) :]), ONE))
        for fineness in ((2e-4, 50), (6e-5, 70), (2e-5, 80)) if t > 100 else [(0, 100 + 2000 // t)]:
            high = min(high, (counts(differ, t, q, epsilon, target, *fineness) + price).upper())
            if high <= target or high > target * 1.006:
                break
    elif high > target and [b for b in blocks if b[1:] not in ((0, 0), b[:1] * 2)] == [(1, 0, 1)]:
        high = min(high, ball(Fraction(largest(t - 1, q, (units(lam),), (1.0001,), 1)[0], ONE)))
    elif high > target:
        low, high = map(min, blanket(blocks, t, q, epsilon, target), (high, high))
    return (low * factor).lower(), min((high * factor).upper(), arb(1))


def fields(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a field comes twice")
    return dict(pairs)


def main(path):
    try:
        with open(path, encoding="utf-8") as file:
            claim = json.load(file, parse_float=Fraction, object_pairs_hook=fields)
        claim["delta"] = min([claim["delta"], *claim["proven"].get("delta", [])[1:]])
        accepted = (high := bounds(claim)[1]) <= ball(claim["delta"] * (1 + SLACK))
        if not accepted and claim["proven"]["method"] == METHODS[-1]:
            raise NotImplementedError("one blanket does not confirm it")
    except Exception as reason:  # a file may contain anything
        print("declined" if type(reason) is NotImplementedError else "invalid", reason, sep=": ")
        return 2
    print("accepted" if accepted else "refused", f"at most {float(high):.6g} is proven", sep=": ")
    return 0 if accepted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else print(__doc__) or 2)
