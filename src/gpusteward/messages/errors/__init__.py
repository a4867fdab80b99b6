"""Why something cannot be used or read, and what helps: settings, files, servers, drivers and the ledger."""
