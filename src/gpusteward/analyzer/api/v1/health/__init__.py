"""The analyzer itself: whether it works, from where it reads, with which settings, and what it delivered."""
