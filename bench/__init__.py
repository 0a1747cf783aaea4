"""Measurements of this machine: `make bench`, or `python -m bench NAME ...`; one module for each question."""
