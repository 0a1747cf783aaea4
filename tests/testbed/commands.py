"""How does the test-bed run programs and wait? Always with a limit, and with the output in the error."""

import subprocess
import time
from collections.abc import Callable, Sequence


class TestbedError(Exception):
    """The test-bed itself did not work: not a failure of what is tested."""

    __test__ = False


def run(argv: Sequence[str], *, limit_s: float = 20, stdin: bytes | None = None) -> str:
    """Run a program of the machine; return its output, raise TestbedError with it when it fails."""
    try:
        done = subprocess.run(
            argv, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TestbedError(f"{' '.join(argv)}: not done after {limit_s:g} s") from error
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        raise TestbedError(f"{' '.join(argv)}: exit code {done.returncode}\n{output}")
    return output


def attempt(argv: Sequence[str], *, limit_s: float = 20) -> bool:
    """Run a program that may well have nothing to do; return whether it succeeded."""
    try:
        run(argv, limit_s=limit_s)
    except TestbedError:
        return False
    return True


def wait_until(condition: Callable[[], object], *, limit_s: float, what: str, every_s: float = 0.01) -> None:
    """Wait for a condition; raise TestbedError that says what did not happen."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"not within {limit_s:g} s: {what}")
        time.sleep(every_s)
