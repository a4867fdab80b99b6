"""One snapshot, several dialects: each file says the same facts under another system's names.

A dialect takes a `View` and yields families. It measures nothing, keeps no clock, and never fails another one.
"""
