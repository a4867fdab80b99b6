"""Tests of the HTTP API: the real application on loopback, with fake components behind it."""
