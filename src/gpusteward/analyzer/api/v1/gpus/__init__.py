"""GPUs and nodes with their holders, and the processes on GPUs."""
