"""The analyzer itself: whether it works, from where it reads, with which settings, and what it delivered.

Resources: health.py, probes.py, sources.py, events.py, deliveries.py.
"""
