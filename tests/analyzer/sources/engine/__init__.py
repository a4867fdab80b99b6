"""Tests of the access to Prometheus-compatible engines."""
