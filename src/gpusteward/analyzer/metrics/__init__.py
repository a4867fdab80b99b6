"""The analyzer's `/metrics` page: the last result and the analyzer's own health as metric families."""
