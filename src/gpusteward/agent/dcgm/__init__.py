"""Profiling signals from a DCGM hostengine, of GPUs that NVML cannot profile (before Hopper). Optional: nothing here is
imported unless a hostengine is configured.

client.py   `Dcgm`: adds the signals to the readings of a cycle; its thread keeps a hanging hostengine out of the cycle
session.py  an open connection: finds the GPUs, watches their fields, reads the latest values
library.py  the functions and structs of libdcgm, and its error codes
"""
