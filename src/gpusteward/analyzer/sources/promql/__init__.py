"""Which queries a site can answer, and the queries of a cycle as PromQL."""
