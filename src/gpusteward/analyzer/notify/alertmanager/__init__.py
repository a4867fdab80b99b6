"""Idle workloads as alerts of Alertmanagers. Alerts are a state and do not go through the outbox.

alerts.py  result -> alerts that fire, alerts that are resolved
pusher.py  sends them to every Alertmanager
"""
