"""The HTTP API under `/api/v1/`: one module per resource; `listing.py` and `pagination.py` are shared by the lists."""
