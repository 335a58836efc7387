"""Nothing is remembered: a test that changes a part of the theory sees what it changed."""

from collections.abc import Iterator

import pytest

from shoal.theory import blanket, domains, homogeneous, proven

REMEMBERED = [
    (blanket, "_totals"),
    (domains, "_maximal_classes"),
    (homogeneous, "_delta"),
    (proven, "_proven_delta"),
]


@pytest.fixture(autouse=True)
def computed_anew() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in REMEMBERED:
            patch.setattr(module, name, getattr(module, name).__wrapped__)
        yield
