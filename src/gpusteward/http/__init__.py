"""HTTP client core for both programs and the command line: connections, TLS, limits, deadlines, errors."""
