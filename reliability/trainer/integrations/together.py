"""What one rank could not do, all ranks leave: none waits for another that has given up."""

from collections.abc import Callable

import torch.distributed as dist


def together(act: Callable[[], object]) -> None:
    """Have every rank do something, and wait for the others. Raises the OSError of the first that could not, on all."""
    mine: OSError | None = None
    try:
        act()
    except OSError as error:
        mine = error
    errors: list[OSError | None] = [mine]
    if dist.is_available() and dist.is_initialized():
        errors = [None] * dist.get_world_size()
        dist.all_gather_object(errors, mine)
    first = next((each for each in errors if each is not None), None)
    if first is not None:
        raise first
