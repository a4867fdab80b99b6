"""Workloads that would fit into a part of each GPU that they hold.

right_sizing.py     peaks -> findings (pure)
mig_profiles.py     MIG profiles by board
flagged_workloads.py  workloads that are idle, keep-alive or only health-checked, and left out
"""
