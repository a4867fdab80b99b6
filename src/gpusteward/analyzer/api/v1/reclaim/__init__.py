"""What `analyzer/reclaim` plans, does and has done. Decides nothing itself."""
