#!/usr/bin/env python
"""Django's command line."""

import os
import sys


def main() -> None:
    """Run a management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    try:
        from django.core.management import execute_from_command_line  # noqa: PLC0415 (settings must be named first)
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: this Python lacks what Stepkeeper needs. Run 'make venv', then .venv/bin/python manage.py")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
