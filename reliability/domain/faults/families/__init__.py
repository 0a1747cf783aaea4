"""The fault-code table, one module for every family of codes: what the codes mean and how their lines look.

All texts are our own. Where public sources disagree about a code, docs/adr/0018 says what was chosen and why.
"""
