"""Access to NVML. Only this package imports pynvml, and no NVML handle leaves it.

session.py      `Nvml`: reads everything once per cycle; opens, closes and re-opens the library
gpu.py          one GPU: its readers, signals, MIG instances and processes
identity.py     uuid, model, bus id, versions: read once; of lost GPUs from /proc and the kubelet
signals.py      signals with one NVML call each: the table and its reader
fields.py       signals from NVML field values: the table, all read in one call
utilization.py  mean utilization of a device and of each process since the last read
gpm.py          profiling signals of Hopper and newer GPUs
processes.py    process lists of a GPU with the memory of each process
events.py       XID errors and clock events, counted since the agent started
library.py      opens and closes the library, looks up functions, classifies error codes
"""

from gpusteward.agent.nvml.gpu import NvmlReading
from gpusteward.agent.nvml.processes import HOST_PID_ADVICE
from gpusteward.agent.nvml.session import Nvml

__all__ = ["HOST_PID_ADVICE", "Nvml", "NvmlReading"]
