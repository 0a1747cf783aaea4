"""Which checks does a node run? One module each; CHECKS lists them."""

from reliability.agent.collectors.checking import Check

CHECKS: tuple[Check, ...] = ()
"""All checks, in the order in which they first run."""
