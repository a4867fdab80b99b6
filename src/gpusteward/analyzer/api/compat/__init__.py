"""gpu-oour's endpoints, unchanged."""
