"""Tests of the HTTP client core."""
