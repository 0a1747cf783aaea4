"""The first process of a job's container: it runs this node's ranks, one attempt after the other.

`python -m stepkeeper.launcher [--preload MODULE ...]` imports what it is told to once, then waits for the agent's
epoch files and forks the ranks of each attempt, so that starting again does not pay for the imports again.
"""
