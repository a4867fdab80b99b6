"""Idle spells: the periods of an allocation without work, from the last work seen to the next.

idle_spells.py    begins, continues and ends them from cycle to cycle
spell_reader.py   reads those of a period; spell_memory.py keeps the recent ones in memory
spell_backfill.py writes those of the past, before the first record
restore_state.py  idle times after a restart
"""
