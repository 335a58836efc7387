"""Powers of characteristic functions, with a bound on what round-off does to them.

``(1 + a)^k`` is computed as ``e^(k ln(1 + a))``. Where 1 + a nearly vanishes (a fair coin turned by
pi) its logarithm is anything between minus infinity and round-off. So its size is kept from
falling below four times its error; what that changes is part of the bound.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shoal.theory.stop_loss.distribution import FloatArray

ComplexArray = npt.NDArray[np.complex128]

_FLOOR = 4.0
_LOST = 1.2
"""ln(3.25) rounded up: see `log_one_plus`."""


def log_one_plus(a: ComplexArray, error: FloatArray) -> tuple[ComplexArray, FloatArray]:
    """``ln(1 + a)``, always finite, and a bound d on its error where a is off by `error`.

    Whatever k >= 1 is, the true ``(1 + a)^k`` differs from e^(k times the result) by at most
    ``e^(kd) - 1`` times its size (theorem). With r = |1 + a| and e its error: if r >= 4e, the
    quotient of the two is a power of a number that is off 1 by at most e/r, so d = e/r. Otherwise
    r is replaced by 4e, the truth is below 5e, and ``(5/4)^k + 1 <= 3.25^k - 1``.

    Examples
    --------
    >>> log, doubt = log_one_plus(np.array([-1.0 + 0j]), np.array([1e-16]))
    >>> bool(np.isfinite(log).all()), doubt.tolist()
    (True, [1.2])
    """
    real = 1.0 + a.real
    size = np.hypot(real, a.imag)
    lost = size < _FLOOR * error
    size = np.where(lost, _FLOOR * error, size)
    square = 2.0 * a.real + a.real**2 + a.imag**2
    with np.errstate(divide="ignore"):  # an error of 0 stands for a = 0, where r is 1
        far = np.log(size)
    # near 1 the square of the size less 1 is the accurate one
    log_size = np.where(square > -0.5, 0.5 * np.log1p(np.maximum(square, -0.5)), far)
    doubt = np.where(lost, _LOST, error / size)
    return log_size + 1j * np.arctan2(a.imag, real), doubt


def power_error(size: FloatArray, wobble: FloatArray) -> FloatArray:
    """Bound the error of a product of size at most 1 whose logarithm is off by `wobble`.

    No characteristic function is larger than 1, so neither is the error more than 1 + size.

    Examples
    --------
    >>> power_error(np.array([0.5]), np.array([1e9])).tolist()
    [1.5]
    """
    grown = size * np.expm1(np.minimum(wobble, 700.0))
    return np.asarray(np.minimum(grown, 1.0 + size) + 1e-300)
