"""The migrations, oldest first. A released one never changes."""
