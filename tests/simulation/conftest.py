"""Property tests draw the same examples every time."""

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, max_examples=80, database=None)
settings.load_profile("steady")
