"""gpu-oour's endpoints with its paths and JSON. Nothing new is added here."""
