"""Django's entry for the app."""

from django.apps import AppConfig


class ReliabilityConfig(AppConfig):
    """Training reliability."""

    name = "reliability"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Training reliability"
