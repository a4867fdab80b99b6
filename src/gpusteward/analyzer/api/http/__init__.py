"""HTTP parts that know no resource: bearer tokens and roles, middleware, error responses, concurrency limits."""
