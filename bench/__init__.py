"""How fast Shoal is, beside its peers and the limits of the machine: `python -m bench`.

Nothing here decides whether a test passes; timings are reported, not asserted.

    measuring.py    candidates, timed in turns
    reporting.py    tables to docs/benchmarks.md and results.json
    __main__.py     the list of sections
    serving.py, proxying.py, load.py    a collector, nginx and senders, in processes of their own

A section is a function in a module of its own that takes the `Options` and returns a `Table`. To
add one, write the module and put its function into `SECTIONS`.
"""

import os

# Before any library reads it: every candidate gets one thread.
for _name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
