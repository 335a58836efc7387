"""What a device keeps between reports, so that the same answer is not lied about afresh.

Fresh lies about the same answer average away. With memory the lies come in two layers (RAPPOR): a
*permanent* one, drawn once for each answer with probability q1 and kept by the device, and an
*instantaneous* one with probability q2 on top, drawn for each report. What is remembered is
already randomized, and the file that holds it is encrypted.

`DeviceMemory` is the device's file, `shoal.memory.keys` keeps its key in another one;
`linking_probability` says how well two reports of one device can be matched; `shoal.remembering`
plans with memory and says what it promises over time.
"""

from shoal.memory.device import DeviceMemory
from shoal.memory.linking import linking_probability

__all__ = ["DeviceMemory", "linking_probability"]
