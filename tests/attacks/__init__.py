"""Attacks on a running analyzer and a running agent: each is sent once or a few times, over loopback only.

What counts is the processor time that an attack takes from the program: while its event loop computes, nobody is
answered, and a busy machine does not change the figure.
"""
