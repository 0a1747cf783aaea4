"""Django's entry for the app."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ReliabilityConfig(AppConfig):
    """Training reliability."""

    name = "reliability"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Training reliability"

    def ready(self) -> None:
        """Keep the roles in step with the permissions that migrations make."""
        from reliability.roles import ensure_roles  # noqa: PLC0415 (models are there only now)

        post_migrate.connect(ensure_roles, sender=self, dispatch_uid="reliability.roles")
