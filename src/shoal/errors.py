"""The errors Shoal raises on purpose.

Each message is one sentence that gives the rule, the value and the way out. Whatever else escapes
from the package is a bug.

::

    ShoalError
    ├── InputError (ValueError)      what was given cannot be used            exit code 2
    │   ├── SurveyError              a survey or one of its questions
    │   │   └── UnknownNameError     a question or an option that is not there (KeyError)
    │   ├── PlanError                a plan, its fields or its id
    │   ├── AnswerError              an answer outside its question's domain
    │   ├── ReportError              a report, a batch or a file of them
    │   │   └── VdafError            a share or message of Prio3, or a proof that does not hold
    │   ├── TallyError               a tally, or tallies that do not belong together
    │   └── MissingExtraError        a library is not installed (ModuleNotFoundError)
    ├── PrivacyRefusal               done as asked, privacy would not hold    exit code 3
    ├── TransportError               nothing came back over the network       exit code 1
    └── EntropyError (RuntimeError)  the machine gave no random bits          exit code 1

A `WeakPromiseWarning` is a warning of Python: a plan was made whose promise protects little.
"""


class ShoalError(Exception):
    """Any error that Shoal raises on purpose."""

    exit_code = 1


class InputError(ShoalError, ValueError):
    """What was given cannot be used; nothing was written."""

    exit_code = 2


class SurveyError(InputError):
    """A survey, or one of its questions, is not well formed."""


class UnknownNameError(SurveyError, KeyError):
    """No question or option has this name."""

    __str__ = Exception.__str__  # a KeyError would show the sentence in quotes


class PlanError(InputError):
    """A plan is not well formed, or is not the plan it claims to be."""


class AnswerError(InputError):
    """An answer is outside the domain of its question; `why` tells nothing of the answer."""

    def __init__(self, message: str, why: str = "is not allowed") -> None:
        super().__init__(message)
        self.why = why


class ReportError(InputError):
    """A report, or a batch or file of reports, is not what its plan says."""


class VdafError(ReportError):
    """A measurement, share or message of Prio3 is malformed, or its proof does not hold."""


class TallyError(InputError):
    """A tally is not well formed, or tallies of different plans were mixed."""


class MissingExtraError(ModuleNotFoundError, InputError):
    """A library is not installed; the message names the extra that brings it."""


class PrivacyRefusal(ShoalError):  # noqa: N818  it refuses; nothing went wrong
    """Done as asked, the promised privacy would not hold."""

    exit_code = 3


class WeakPromiseWarning(UserWarning):
    """A plan's promise is kept but protects little: delta or epsilon is large."""


class TransportError(ShoalError):
    """Nothing came back, or nothing that can be trusted; trying again later may help."""


class EntropyError(ShoalError, RuntimeError):
    """The operating system did not deliver random bits; no weaker generator is used instead."""


_EXTRAS = {
    "cli": ("click", "rich"),
    "analysis": ("jinja2", "numpy", "openpyxl", "pyarrow", "scipy"),
    "server": ("httptools", "msgspec", "prometheus_client", "starlette"),
    "postgres": ("psycopg",),
    "curator": ("opendp",),
    "plots": ("matplotlib",),
    "rigorous": ("flint",),
    "spark": ("pyspark",),
    "encryption": ("cryptography", "pyhpke"),
}
"""The libraries that each extra brings."""


def missing_extra(error: ImportError, purpose: str = "this") -> ImportError:
    """Return an error that names the extra of a missing library, or the error if none has it.

    >>> missing_extra(ModuleNotFoundError(name="numpy"), "estimating")
    MissingExtraError("estimating needs numpy: pip install 'shoal[analysis]'.")
    """
    library = (error.name or str(error)).partition(".")[0]
    for extra, libraries in _EXTRAS.items():
        if library in libraries:
            sentence = f"{purpose} needs {library}: pip install 'shoal[{extra}]'."
            return MissingExtraError(sentence, name=library)
    return error


def require(*libraries: str, purpose: str = "this") -> None:
    """Raise `MissingExtraError` for the first of these libraries that is not installed.

    >>> require("sys")
    """
    from importlib.util import find_spec

    for library in libraries:
        if find_spec(library) is None:
            raise missing_extra(ModuleNotFoundError(f"{library} is missing", name=library), purpose)
