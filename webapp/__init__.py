"""The web application: settings, routes, and the Celery app that Django loads with it."""

from webapp.celery import app as celery_app

__all__ = ["celery_app"]
