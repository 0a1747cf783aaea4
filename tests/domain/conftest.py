"""Property tests draw the same examples every time, so that a failure is met again and a pass means the same."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    max_examples=80,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")
