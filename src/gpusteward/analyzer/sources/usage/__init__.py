"""What both sources share: series identity, label mapping, presence, coverage, merging into the usage table."""
