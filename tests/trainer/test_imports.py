"""The client must be light: what it imports, a training program on a bare image must have."""

import subprocess
import sys

from tests.trainer.node import REPO

PROBE = """
import sys
import reliability.trainer, reliability.trainer.launcher.__main__
own = {*sys.stdlib_module_names, 'reliability', '__main__', 'sitecustomize'}
foreign = {name.split('.')[0] for name in sys.modules} - own
print(sorted(name for name in foreign if not name.startswith('_')))
ours = (name for name in sys.modules if name.startswith('reliability.'))
print('ours', sorted(name for name in ours if not name.startswith('reliability.trainer')))
"""


def test_the_client_and_the_launcher_import_nothing_but_the_standard_library_and_themselves():
    argv = [sys.executable, "-c", PROBE]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, timeout=60, check=True)
    foreign, ours = done.stdout.splitlines()
    assert "django" not in foreign
    assert "numpy" not in foreign
    assert foreign == "[]"
    assert ours == "ours []"
