"""What a device keeps between reports, so that the same answer is not randomized afresh.

Fresh flips of the same answer average away. With memory the flips come in two layers (RAPPOR): a
*permanent* one, drawn once for each answer with probability q1 and kept by the device, and an
*fresh* one with probability q2 on top, drawn for each report. What is remembered is
already randomized, and the file that holds it is encrypted.

`DeviceMemory` is the device's file, `shoal.device.memory.keys` keeps its key in another one;
`shoal.planning.over_time` plans with memory, says what that promises over time and how well two
reports of one device can be matched.
"""

from shoal.device.memory.device import DeviceMemory

__all__ = ["DeviceMemory"]
