"""Tests of the owners that the Kubernetes API names."""
