"""The public names of `shoal`: each loads, is documented, and is exported by its home module."""

from __future__ import annotations

import importlib

import pytest

import shoal


def test_every_public_name_loads_and_is_documented():
    assert shoal.__all__ == sorted(shoal._HOMES)
    for name, home in shoal._HOMES.items():
        value = getattr(shoal, name)
        module = importlib.import_module(f"shoal.{home}")
        assert getattr(module, name) is value
        assert value.__doc__
        assert f"`{name}`" in str(shoal.__doc__)


def test_dir_and_unknown_names():
    assert dir(shoal) == shoal.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        shoal.nothing  # noqa: B018
