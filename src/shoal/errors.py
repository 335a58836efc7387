"""The errors Shoal raises on purpose.

Each message is one sentence that gives the rule, the value and the way out. Whatever else escapes
from the package is a bug.

::

    ShoalError
    ├── InputError (ValueError)      what was given cannot be used            exit code 2
    │   ├── SurveyError              a survey or one of its questions
    │   ├── PlanError                a plan, its fields or its id
    │   ├── AnswerError              an answer outside its question's domain
    │   ├── ReportError              a report, a batch or a file of them
    │   └── TallyError               a tally, or tallies that do not belong together
    ├── PrivacyRefusal               done as asked, privacy would not hold    exit code 3
    ├── TransportError               nothing came back over the network       exit code 1
    └── EntropyError (RuntimeError)  the machine gave no random bits          exit code 1
"""

__all__ = [
    "AnswerError",
    "EntropyError",
    "InputError",
    "PlanError",
    "PrivacyRefusal",
    "ReportError",
    "ShoalError",
    "SurveyError",
    "TallyError",
    "TransportError",
    "missing_extra",
]


class ShoalError(Exception):
    """Any error that Shoal raises on purpose."""

    exit_code = 1


class InputError(ShoalError, ValueError):
    """What was given cannot be used; nothing was written."""

    exit_code = 2


class SurveyError(InputError):
    """A survey, or one of its questions, is not well formed."""


class PlanError(InputError):
    """A plan is not well formed, or is not the plan it claims to be."""


class AnswerError(InputError):
    """An answer is outside the domain of its question."""


class ReportError(InputError):
    """A report, or a batch or file of reports, is not what its plan says."""


class TallyError(InputError):
    """A tally is not well formed, or tallies of different plans were mixed."""


class PrivacyRefusal(ShoalError):  # noqa: N818  it refuses; nothing went wrong
    """Done as asked, the promised privacy would not hold."""

    exit_code = 3


class TransportError(ShoalError):
    """Nothing came back, or nothing that can be trusted; trying again later may help."""


class EntropyError(ShoalError, RuntimeError):
    """The operating system did not deliver random bits; no weaker generator is used instead."""


_EXTRAS = {
    "click": "cli",
    "cryptography": "encryption",
    "jinja2": "analysis",
    "matplotlib": "plots",
    "numpy": "analysis",
    "opendp": "curator",
    "psycopg": "postgres",
    "pyarrow": "analysis",
    "pyhpke": "encryption",
    "pyspark": "spark",
    "rich": "cli",
    "scipy": "analysis",
}


def missing_extra(error: ModuleNotFoundError, purpose: str = "this") -> InputError:
    """Return an error that names the extra which brings a missing library.

    >>> missing_extra(ModuleNotFoundError(name="numpy"), "estimating")
    InputError("estimating needs numpy: pip install 'shoal[analysis]'.")
    """
    library = (error.name or "a library").partition(".")[0]
    extra = _EXTRAS.get(library, "server")
    return InputError(f"{purpose} needs {library}: pip install 'shoal[{extra}]'.")
