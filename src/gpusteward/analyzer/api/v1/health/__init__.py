"""The analyzer itself: whether it works, from where it reads, with which settings, and what it delivered.

Resources: health.py, probes.py, sources.py, settings.py, events.py, deliveries.py. Part of the health:
data_problems.py.
"""
