"""Django's SQLite with another way to wait for the one writer."""
