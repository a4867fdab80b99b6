"""What is done to an object, and undone: one action after the other, each step in the journal; warnings before it."""
