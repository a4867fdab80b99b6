"""The only door to NVML.

    door.py         `Nvml`: one read of everything; opens, closes and re-opens the library
    session.py      all that lives from opening to closing
    chronicle.py    what is counted through all of that
    measure.py      one GPU: everything below, put together
    library.py      the library itself: open, close, find a symbol; what its error codes mean
    devices.py      GPUs and MIG instances: found, kept, recognised again
    identity.py     what never changes while the driver runs: uuid, model, bus id, versions
    signals.py      signals that are one call each: the table and its reader
    fields.py       signals that are field values: the table, all in one call
    samples.py      utilization since the last read
    licences.py     the vGPU licence
    gpm.py          profiling signals, Hopper and newer
    processes.py    who is on a GPU, and with how much memory
    utilization.py  what each process uses
    events.py       XID errors, by a thread

Nothing else imports pynvml, and no NVML handle leaves this room.
"""

from gpusteward.agent.nvml.client import Nvml, NvmlReading
from gpusteward.agent.nvml.library import SIMULATE
from gpusteward.agent.nvml.processes import IN_POD

__all__ = ["IN_POD", "SIMULATE", "Nvml", "NvmlReading"]
