"""Settings of every test."""

from hypothesis import settings

settings.register_profile("laketx", deadline=None)  # a busy machine is no failure
settings.load_profile("laketx")
