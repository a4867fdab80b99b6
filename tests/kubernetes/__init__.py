"""Tests of the Kubernetes API client and of the owners of pods."""
