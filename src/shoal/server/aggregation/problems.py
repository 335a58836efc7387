"""Problem documents of DAP: types `urn:ietf:params:ppm:dap:error:...`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

from shoal.server.core.problems import Problem


@dataclass(frozen=True)
class DapProblem(Problem):
    """A problem whose type the draft defines; it names the task if it is one of ours."""

    task: str = ""

    @cached_property
    def body(self) -> bytes:
        document = {
            "type": f"urn:ietf:params:ppm:dap:error:{self.name}",
            "title": self.title,
            "status": self.status,
        }
        return json.dumps(document | ({"taskid": self.task} if self.task else {})).encode()


INVALID_MESSAGE = DapProblem(400, "invalidMessage", "The message cannot be parsed.")
UNRECOGNIZED_TASK = DapProblem(404, "unrecognizedTask", "There is no such task here.")
UNRECOGNIZED_JOB = DapProblem(
    404, "unrecognizedAggregationJob", "There is no such aggregation job here."
)
STEP_MISMATCH = DapProblem(
    400, "stepMismatch", "Prio3 has one step: an aggregation job is not continued."
)
UNSUPPORTED_EXTENSION = DapProblem(
    400, "unsupportedExtension", "An extension of the request is not known."
)
INVALID_EXTENSION = DapProblem(
    400, "invalidExtension", "The extensions are out of order, or one of them is malformed."
)
INVALID_PARAMETER = DapProblem(
    400, "invalidAggregationParameter", "Prio3 has no aggregation parameter."
)
BATCH_INVALID = DapProblem(
    400, "batchInvalid", "There is no such batch, or its reports are not of one open window."
)
INVALID_BATCH_SIZE = DapProblem(
    400, "invalidBatchSize", "The batch has fewer reports than the crowd needs."
)
BATCH_MISMATCH = DapProblem(
    400, "batchMismatch", "The aggregators have different reports in this batch."
)
BATCH_OVERLAP = DapProblem(400, "batchOverlap", "The batch was collected before, or discarded.")
