"""Runs the processes of one machine: starts, watches, restarts and ends them, and leaves none behind.

Standard library only, single-threaded: the death signal of a child is bound to the thread that started it.
"""
