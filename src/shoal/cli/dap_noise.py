"""`shoal dap-noise`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shoal.cli import options as cli
from shoal.cli import output as out
from shoal.cli.options import opt


@dataclass(frozen=True)
class _Task:
    """The arguments of `shoal.planning.dap_noise.dap_noise`."""

    vdaf: Literal["count", "sum", "sumvec", "histogram", "multihotcountvec"] = opt("Which Prio3.")
    batch: int = opt("How many honest reports a batch has at least.", "N")
    delta: str = cli.DELTA
    epsilon: str | None = cli.EPSILON
    eps0: str | None = opt("Instead of --epsilon: the eps_0 with which clients flip.", "E")
    length: int | None = opt("How many entries a vector has.", "L")
    max_measurement: int | None = opt("The largest number of a sum or sumvec.", "M")
    weight: int | None = opt("Ones of a vector before it is flipped.  [default: 1]", "K")
    max_weight: int | None = opt(
        "Ones that the proof allows after flips.  [default: as few as will do]", "W"
    )
    neighbours: Literal["replace", "add-remove"] = opt(
        "Neighbouring batches: one report replaced, or one added or removed.", default="replace"
    )


@cli.command(
    "shoal dap-noise --vdaf multihotcountvec --length 100 --batch 100000 \\\n"
    "    --epsilon 0.906 --delta 1e-9",
    "dap-noise",
)
def dap_noise(task: _Task) -> out.Result:
    """Compute the noise of a DAP task, of clients or of aggregators.

    Clients flip bits, or aggregators add noise to their shares. Both ways are printed side by side,
    each with the trust model for which it holds (draft-wang-ppm-differential-privacy), for any
    deployment of DAP with Prio3, not only Shoal's.

    With --eps0 it computes which epsilon is proven for clients that already flip.
    """
    from shoal.planning.dap_noise import dap_noise as compute

    with out.waiting():
        noise = compute(**vars(task))
    return out.Result(noise.to_json(), str(noise))
