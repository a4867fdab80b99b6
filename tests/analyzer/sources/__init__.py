"""Tests of the usage sources."""
