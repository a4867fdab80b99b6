"""Access to Prometheus-compatible engines. Knows no metric names and no query plan.

settings.py          the settings section `prometheus`
service_discovery.py the Service of an engine, found by its labels
client.py            HTTP requests: credentials, limits, retries
decode.py            JSON responses -> vectors of label texts and values
label_text_index.py  label texts -> row numbers
sharding.py          splits queries that select too many series into groups of nodes
"""
