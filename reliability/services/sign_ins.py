"""May someone try a password now? Counts tries by address and by name, for pages and programs alike.

A try is counted before the password is looked at and given back when it was right, so that tries made side by side
cannot pass the limit, and people who know their password are not in each other's way.
"""

import contextlib

from django.core.cache import cache

WINDOW_S = 60
ADDRESS_TRIES = 30
NAME_TRIES = 10
_LONGEST_NAME = 150


def begin(*, address: str, name: str) -> bool:
    """Count a try. Returns False, and counts it all the same, when there were too many within the last minute."""
    counts = [(_count(key), most) for key, most in _limits(address, name)]
    return all(count <= most for count, most in counts)


def succeeded(*, address: str, name: str) -> None:
    """Give the try back: name and password belong together."""
    for key, _ in _limits(address, name):
        with contextlib.suppress(ValueError):  # the minute is over and the count with it
            cache.decr(key)


def _limits(address: str, name: str) -> list[tuple[str, int]]:
    spelled = name[:_LONGEST_NAME].casefold().encode(errors="surrogatepass").hex()
    return [(f"sign_in:address:{address}", ADDRESS_TRIES), (f"sign_in:name:{spelled}", NAME_TRIES)]


def _count(key: str) -> int:
    cache.add(key, 0, WINDOW_S)
    try:
        return cache.incr(key)
    except ValueError:  # it ran out in between
        cache.set(key, 1, WINDOW_S)
        return 1
