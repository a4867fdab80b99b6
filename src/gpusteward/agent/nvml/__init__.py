"""Access to NVML. Only this package imports pynvml, and no NVML handle leaves it.

client.py       `Nvml`: reads everything once per cycle; opens, closes and re-opens the library
session.py      everything that lives from opening NVML to closing it
gpu_reader.py   one GPU: its signals, MIG instances and processes
devices.py      GPUs and MIG instances with their readers
identity.py     uuid, model, bus id, versions: read once
signals.py      signals with one NVML call each: the table and its reader
fields.py       signals from NVML field values: the table, all read in one call
utilization.py  mean utilization of a device and of each process since the last read
gpm.py          profiling signals of Hopper and newer GPUs
processes.py    process lists of a GPU with the memory of each process
events.py       XID errors and clock events, counted since the agent started
library.py      opens and closes the library, looks up functions, classifies error codes
"""

from gpusteward.agent.nvml.client import Nvml, NvmlReading
from gpusteward.agent.nvml.processes import HOST_PID_ADVICE

__all__ = ["HOST_PID_ADVICE", "Nvml", "NvmlReading"]
