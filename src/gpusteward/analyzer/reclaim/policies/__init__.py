"""Policies: when idle GPUs are given back, and how. They come from the operator's file, annotations and defaults."""
