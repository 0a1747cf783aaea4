"""The barest warm container: imports once, then forks the trainer for each order. It is no part of the product.

Run as PID 1 with the modules to import as arguments. Orders: /stepkeeper/floor/<N>.json, {"env": {...}, "argv": [...]}.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

ORDERS = Path("/stepkeeper/floor")


def become(order: dict[str, object]) -> None:
    """Run the program in this forked process, and end it."""
    os.environ.update(order["env"])  # type: ignore[arg-type]
    sys.argv = [str(word) for word in order["argv"]]  # type: ignore[attr-defined]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    code = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    """Fork for every new order; a newer one kills the older process."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    ORDERS.mkdir(parents=True, exist_ok=True)
    (ORDERS / "ready").touch()
    done, child = 0, 0
    while True:
        newest = max((int(path.stem) for path in ORDERS.glob("*.json")), default=0)
        if newest > done:
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            done = newest
            order = json.loads((ORDERS / f"{newest}.json").read_text())
            child = os.fork()
            if child == 0:
                become(order)
        time.sleep(0.005)


if __name__ == "__main__":
    main()
