"""What this machine can take, measured, and what many devices a day would need of it.

    `work`      what one kind of work costs: processor time, time that passes, disk
    `probes`    the measurements, each through the code that does the work in earnest
    `needs`     from costs to cores, disk and network, by formulas that are printed with the numbers

`measure_capacity` does all of it.
"""

from shoal.lab.capacity.needs import Capacity, Need, measure_capacity

__all__ = ["Capacity", "Need", "measure_capacity"]
