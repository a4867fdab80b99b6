"""Access to Prometheus-compatible engines. Knows no metric names and no query plan.

settings.py      the settings section `prometheus`
found_engine.py  an engine whose Service is found by its labels
client.py        HTTP requests: credentials, limits, retries
decode.py        JSON responses -> vectors of label texts and values
"""
