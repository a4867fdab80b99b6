"""The steps, oldest first. A released one never changes."""
