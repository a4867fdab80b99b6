"""Tests of notices, outbox, control webhook, channels and Alertmanager."""
