"""What is done to an object, and undone: one action after the other, each step in the journal; warnings before it.

changes.py      a change of one object: the patch, its undo, the check that it holds
journal.py      actions, and the table that keeps them
warnings.py     warnings and other notices, through the outbox
usage_check.py  usage once more, right before an action
executor.py     one action on one object, its restore, and what an interrupted process has left
"""
