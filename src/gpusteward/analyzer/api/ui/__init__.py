"""The web UI: files that were built from `web/` into `static/`, served under /ui/ by `routes.py`.

They contain nothing of the cluster: no token is needed to load them, and all they show comes from /api/v1.
"""
