"""What every endpoint needs: authentication, middleware, error responses, compressed bodies, concurrency limits."""
