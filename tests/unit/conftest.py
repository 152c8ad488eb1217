"""Property tests here find the same examples in every run, as many as the run's profile says, and a busy machine does
not fail them."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "longshore", settings(), derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("longshore")
