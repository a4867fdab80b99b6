"""Access to Prometheus-compatible engines: HTTP requests, decoding of responses, sharding."""
