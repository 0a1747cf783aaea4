"""How is a number of bytes written for people? The same on pages, in reasons and by commands: in powers of 1000."""

_UNITS = ("KB", "MB", "GB", "TB")


def spoken(count: float) -> str:
    """Return a number of bytes as `512 B`, `1.5 MB` or `2.0 TB`."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in _UNITS[:-1]:
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} {_UNITS[-1]}"
