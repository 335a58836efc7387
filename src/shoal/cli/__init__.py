"""The command `shoal`: turns words into function calls.

Exit codes: 0 done; 2 bad usage or input; 3 refused because privacy would not hold; 1 anything
else. An error is one sentence on stderr. This module imports no library, so that `shoal --version`
and the name of a missing extra need none.
"""

from __future__ import annotations

import os
import sys
import warnings

from shoal import __version__
from shoal.errors import MissingExtraError, ShoalError, WeakPromiseWarning, missing_extra
from shoal.support.files import printable

__all__ = ["main", "run"]


def main() -> None:
    """Run the command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command with the given arguments and return its exit code."""
    if arguments == ["--version"]:
        print(f"shoal {__version__}")
        return 0
    warnings.simplefilter("ignore", WeakPromiseWarning)  # commands print them
    try:
        from shoal.cli.commands import invoke

        return invoke(arguments)
    except ShoalError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; no file is half written.", 1)
    except BrokenPipeError:  # the reader of our output has closed it, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        return _fail("the machine ran out of memory; free some, or use less data.", 1)
    except Exception as error:
        missing = missing_extra(error) if isinstance(error, ImportError) else None
        if isinstance(missing, MissingExtraError):
            return _fail(str(missing), missing.exit_code)
        if "SHOAL_DEBUG" in os.environ:
            raise
        return _fail(
            f"an unexpected {type(error).__name__} occurred; set SHOAL_DEBUG=1 to see where, and"
            " please report it.",
            1,
        )


def _fail(sentence: str, exit_code: int) -> int:
    lines = map(printable, sentence.split("\n"))  # it may quote untrusted text
    print("shoal: " + "\n".join(lines), file=sys.stderr)
    return exit_code
