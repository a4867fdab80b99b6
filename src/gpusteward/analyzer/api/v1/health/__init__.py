"""The analyzer itself: whether it works, from where it reads, with which settings, and what it delivered.

Resources: health.py with the probes, sources.py, events.py, deliveries.py.
"""
