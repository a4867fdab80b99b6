"""Tests of the /metrics page."""
