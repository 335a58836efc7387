"""Found by Python at its start: the commands of a page draw the same bits each time they are run.

Else what a page shows would be a lottery: whether a small count falls below zero, and which of two
close words comes first. `doc_pages.py` puts this folder on the path of the commands that it runs;
nothing of Shoal knows of it. What a command starts by itself draws from the system, as ever.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable


def keys_of(seed: str) -> Callable[[], bytes]:
    """Return what gives one key after the other, the same for the same seed."""
    numbers = itertools.count()
    return lambda: hashlib.sha256(f"{seed} {next(numbers)}".encode()).digest()


if seed := os.environ.pop("SHOAL_PAGE_SEED", ""):
    from shoal.protocol import random_bits

    random_bits._fresh_key = keys_of(seed)
