"""Pod -> root owner, read from the Kubernetes API."""
