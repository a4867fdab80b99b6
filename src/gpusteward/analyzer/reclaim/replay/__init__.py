"""What a policy would have done in the past, from the idle spells of the ledger."""
