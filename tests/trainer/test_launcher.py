"""Does the launcher run what the newest epoch file says, end everything older, and tell the truth about ends?"""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.node import REPO, Node, alive, wait_until, write_whole

MakeNode = Callable[..., Node]

SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(text)
        return str(path)

    return write


def test_a_forked_program_finds_itself_as_in_a_process_of_its_own(make_node: MakeNode, script, tmp_path: Path):
    program = script("""
import json, os, random, signal, sys, __main__
print(json.dumps({
    "argv": sys.argv, "main": __name__ == "__main__" and __main__.__file__ == __file__, "path0": sys.path[0],
    "cwd": os.getcwd(), "leader": os.getsid(0) == os.getpid(), "rank": os.environ["RANK"], "own": os.environ["OWN"],
    "handlers": [signal.getsignal(s) is signal.SIG_DFL for s in (signal.SIGTERM, signal.SIGCHLD)],
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "wakeup": signal.set_wakeup_fd(-1), "fds": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "random": random.random(), "numpy": sys.modules["numpy"].random.random(), "frozen": "collections" in sys.modules,
}))
""")
    node = make_node(env={"OPENBLAS_NUM_THREADS": "1"})
    ready = node.start("numpy.random", "no_such_module")
    assert ready["preloaded"] == ["numpy.random"]
    assert "No module named" in ready["failed"]["no_such_module"]
    workdir = tmp_path / "work"
    workdir.mkdir()
    node.order(1, [program, "--x", "ü"], [{"OWN": "a"}, {"OWN": "b"}], workdir=workdir)
    seen = []
    for rank in (0, 1):
        assert node.exit_of(1, rank)["exit_code"] == 0, node.log_of(1, rank)
        seen.append(json.loads(node.log_of(1, rank)))
    for rank, facts in enumerate(seen):
        assert facts["argv"] == [program, "--x", "ü"]
        assert facts["main"]
        assert facts["path0"] == str(Path(program).parent)
        assert facts["cwd"] == str(workdir)
        assert facts["leader"]
        assert (facts["rank"], facts["own"]) == (str(rank), "ab"[rank])
        assert facts["handlers"] == [True, True]
        assert facts["interrupt"]
        assert facts["wakeup"] == -1
        assert facts["fds"] == [0, 1, 2]
    assert seen[0]["random"] != seen[1]["random"]
    assert seen[0]["numpy"] != seen[1]["numpy"]


@pytest.mark.parametrize(
    ("text", "code", "tail"),
    [
        ("print('fine')", 0, "fine\n"),
        ("raise SystemExit(7)", 7, ""),
        ("import sys; sys.exit('a reason')", 1, "a reason\n"),
        ("import atexit; atexit.register(print, 'bye'); 1 / 0", 1, "ZeroDivisionError: division by zero\nbye\n"),
        ("def (", 1, "SyntaxError: invalid syntax\n"),
        (
            "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('last'))).start()",
            0,
            "last\n",
        ),
        ("import os; os.write(1, b'\\xff' * 3 + b'x' * 6000 + b'END'); os._exit(3)", 3, "xxxEND"),
    ],
)
def test_an_end_is_told_with_code_and_last_words(make_node: MakeNode, script, text: str, code: int, tail: str):
    node = make_node()
    node.start()
    node.order(1, [script(text)])
    end = node.exit_of(1)
    assert (end["epoch"], end["rank"], end["exit_code"], end["signal"]) == (1, 0, code, 0)
    assert end["tail"].endswith(tail)
    assert len(end["tail"]) <= 4096


def test_the_traceback_of_a_program_shows_the_program_only(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(1, [script("def f():\n    raise ValueError('boom')\n\nf()\n")])
    lines = node.exit_of(1)["tail"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "program.py" in lines[1]
    assert "runpy" not in "".join(lines)
    assert lines[-1] == "ValueError: boom"


def test_a_program_that_is_not_there_says_so(make_node: MakeNode, tmp_path: Path):
    node = make_node()
    node.start()
    node.order(1, ["/no/such/file.py"])
    assert node.exit_of(1)["exit_code"] == 127
    assert "no such file" in node.exit_of(1)["tail"]
    node.order(2, ["no-such-program"], mode="plain")
    assert node.exit_of(2)["exit_code"] == 127
    node.order(3, [str(tmp_path)], mode="plain")
    assert node.exit_of(3)["exit_code"] == 126
    node.order(4, ["true"], mode="plain", workdir=tmp_path / "missing")
    assert "cannot enter" in node.exit_of(4)["tail"]


def test_plain_mode_runs_any_program_and_the_client_can_be_imported_there(make_node: MakeNode):
    node = make_node()
    node.start()
    node.order(1, ["sh", "-c", "echo $RANK $X; exit 5"], [{"X": "y"}], mode="plain")
    assert node.exit_of(1)["exit_code"] == 5
    assert node.log_of(1) == "0 y\n"
    node.order(2, [sys.executable, "-c", "import stepkeeper; print(stepkeeper.__version__)"], mode="plain")
    assert node.exit_of(2)["tail"] == "0.1.0\n"


def test_a_killed_rank_is_told_with_its_signal_and_the_others_stay(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(1, [script(SLEEPER)], [{}, {}])
    pids = node.pids(1)
    os.kill(pids["1"], signal.SIGKILL)
    end = node.exit_of(1, 1)
    assert (end["exit_code"], end["signal"], end["ordered"]) == (137, 9, False)
    assert alive(pids["0"])
    assert node.read("ctl/exit-1-0.json") is None


def test_a_new_epoch_ends_stopped_ranks_and_their_runaway_children_first(make_node: MakeNode, script):
    node = make_node()
    node.start()
    stubborn = script("""
import os, signal, subprocess, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
own = subprocess.Popen(["sleep", "600"])
away = subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & echo $!; exit"], stdout=subprocess.PIPE)
print("children", own.pid, int(away.stdout.readline()), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
""")
    node.order(1, [stubborn])
    old = node.pids(1)["0"]
    words = wait_until(lambda: node.log_of(1).split(), "children")
    family = [old, *map(int, words[1:])]
    wait_until(lambda: Path(f"/proc/{old}/stat").read_text().rpartition(")")[2].split()[0] == "T", "stopped")
    node.order(2, ["sh", "-c", "for pid in $OLD; do kill -0 $pid && echo alive $pid; done; exit 0"], [
        {"OLD": " ".join(map(str, family))}
    ], mode="plain")  # fmt: skip
    assert node.exit_of(2)["exit_code"] == 0
    assert "alive" not in node.log_of(2)
    assert not any(alive(pid) for pid in family)
    assert node.exit_of(1)["ordered"] is True


def test_a_stop_is_answered_when_all_old_ranks_are_gone(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(1, [script(SLEEPER)], [{}, {}])
    pids = node.pids(1)
    node.order_stop(2)
    assert node.pids(2) == {} or node.read("ctl/run-2.json")["pids"] == {}
    assert not any(alive(pid) for pid in pids.values())
    node.order(3, [script("print('again')")])
    assert node.exit_of(3)["exit_code"] == 0


def test_a_lower_epoch_that_comes_late_is_not_run(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(5, [script(SLEEPER)])
    running = node.pids(5)["0"]
    node.order(4, [script("print('late')")])
    node.order(6, ["true"], mode="plain")
    node.exit_of(6)
    assert not alive(running)
    assert node.read("ctl/run-4.json") is None


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ('{"epoch": 2, "program": ["x"', "ignored"),
        ({"epoch": 3, "program": ["true"], "ranks": []}, "epoch must be 2"),
        ({"epoch": 2, "program": "true", "ranks": []}, "program"),
        ({"epoch": 2, "program": ["true"], "ranks": []}, "ranks"),
        ({"epoch": 2, "program": ["true"], "mode": "spawn", "ranks": [{"rank": 0, "local_rank": 0}]}, "mode"),
        ({"epoch": 2, "program": ["true"], "ranks": [{"rank": 0, "local_rank": 0, "env": {"A": 1}}]}, "env.A"),
        ({"epoch": 2, "program": ["true"], "ranks": [{"rank": 0, "local_rank": -1}]}, "local_rank"),
        ({"epoch": 2, "stop": "yes"}, "stop"),
    ],
)
def test_a_bad_epoch_file_is_said_once_and_changes_nothing(make_node: MakeNode, script, content: object, field: str):
    node = make_node()
    node.start()
    node.order(1, [script(SLEEPER)])
    running = node.pids(1)["0"]
    write_whole(node.root / "ctl/epoch-2.json", content)
    wait_until(lambda: field in node.said(), f"a line about {field}; said: {node.said()}")
    assert "epoch-2.json is ignored" in node.said()
    assert alive(running)
    node.order(3, ["true"], mode="plain")
    node.exit_of(3)
    assert node.said().count("epoch-2.json") == 1


def test_a_launcher_that_comes_back_does_not_run_an_epoch_again_but_the_next(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(1, [script(SLEEPER)])
    rank = node.pids(1)["0"]
    wait_until(lambda: node.log_of(1), "rank is up")
    assert node.launcher is not None
    node.launcher.kill()
    node.launcher.wait(10)
    wait_until(lambda: not alive(rank), "the rank dies with its launcher")
    node.start()
    node.order(2, [script("print('next')")])
    assert node.exit_of(2)["exit_code"] == 0
    assert node.log_of(1) == "up\n"
    assert node.read("ctl/exit-1-0.json") is None


def test_an_epoch_that_was_ordered_before_the_launcher_was_up_is_run(make_node: MakeNode, script):
    node = make_node()
    node.order(4, [script("print('hello')")])
    node.start()
    assert node.exit_of(4)["exit_code"] == 0


def test_orphans_are_collected_and_what_a_rank_leaves_behind_ends_with_it(make_node: MakeNode):
    node = make_node()
    node.start()
    node.order(1, ["sh", "-c", "sleep 600 & echo $!; (setsid sleep 0.2 &) ; sleep 0.1"], mode="plain")
    assert node.exit_of(1)["exit_code"] == 0
    left = int(node.log_of(1))
    wait_until(lambda: not Path(f"/proc/{left}").exists(), "the child of the rank is gone")
    assert node.launcher is not None
    children = Path(f"/proc/{node.launcher.pid}/task/{node.launcher.pid}/children")
    wait_until(lambda: children.read_text() == "", "no child, dead or alive, is left")


def test_a_stop_of_the_container_ends_all_ranks_and_the_launcher_with_0(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(1, [script("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEPER)], [{}, {}])
    pids = node.pids(1)
    wait_until(lambda: node.log_of(1, 1), "rank is up")
    assert node.stop() == 0
    assert not any(alive(pid) for pid in pids.values())


def test_as_first_process_of_a_container_it_collects_orphans_and_obeys_sigterm(tmp_path: Path):
    """In a process name space of its own, where signals without a handler are lost and orphans come to process 1."""
    node = Node(tmp_path / "node")
    node.order(1, ["sh", "-c", "(sleep 0.2 &); sleep 600"], mode="plain")
    rooted = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    argv = ["unshare", *rooted, "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable]
    env = {**os.environ, "STEPKEEPER_DIR": str(node.root), "PYTHONPATH": str(REPO)}
    with subprocess.Popen([*argv, "-m", "reliability.trainer.launcher"], env=env) as outside:
        try:
            assert node.pids(1) == {"0": 2}
            assert node.read("ctl/ready.json")["pid"] == 1
            below = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
            first = int(below.read_text())
            children = Path(f"/proc/{first}/task/{first}/children")
            wait_until(lambda: len(children.read_text().split()) == 1, "the orphan came and went")
            os.kill(first, signal.SIGTERM)
            assert outside.wait(10) == 0
        finally:
            outside.kill()
    assert node.exit_of(1)["ordered"] is True


def test_a_launcher_outside_a_container_ends_with_its_parent(tmp_path: Path, script):
    node = Node(tmp_path / "node")
    node.order(1, [script(SLEEPER)])
    shell = f"{sys.executable} -m reliability.trainer.launcher & echo $!; wait"
    env = {**os.environ, "STEPKEEPER_DIR": str(node.root), "PYTHONPATH": str(REPO), "STEPKEEPER_PARENT_DEATH": "1"}
    with subprocess.Popen(["sh", "-c", shell], env=env, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        launcher = int(parent.stdout.readline())
        try:
            rank = node.pids(1)["0"]
        finally:
            parent.kill()
    wait_until(lambda: not alive(launcher) and not alive(rank), "launcher and rank are gone")


def test_a_new_epoch_is_noticed_within_ten_milliseconds(make_node: MakeNode):
    """From the epoch file to the answer to a stop; on a busy machine a quarter of the answers must be that quick."""
    node = make_node()
    node.start()
    took = []
    for epoch in range(1, 22):
        node.order_stop(epoch)
        asked = (node.root / f"ctl/epoch-{epoch}.json").stat().st_ctime_ns
        wait_until(lambda epoch=epoch: node.read(f"ctl/run-{epoch}.json"), "answer")
        took.append(((node.root / f"ctl/run-{epoch}.json").stat().st_ctime_ns - asked) / 1e6)
    assert statistics.quantiles(took, n=4)[0] < 10, took


def test_the_agent_is_nudged_at_each_turn(make_node: MakeNode, script):
    node = make_node()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(node.root / "run/agent.sock"))
        agent.settimeout(20)
        node.start()
        node.order(1, [script("pass")])
        hints = [json.loads(agent.recv(4096)) for _ in range(3)]
    assert hints == [{"t": "ready"}, {"t": "run", "epoch": 1}, {"t": "exit", "epoch": 1, "rank": 0}]


def test_a_talkative_rank_neither_blocks_nor_fills_the_memory_tier(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(1, [script("line = 'x' * 99\nfor _ in range(400_000):\n    print(line)\nprint('END')")])
    end = node.exit_of(1, limit_s=60)
    assert end["exit_code"] == 0
    assert end["tail"].endswith("END\n")
    kept = sum(path.stat().st_size for path in (node.root / "log").iterdir())
    assert kept <= 33 * 1024 * 1024


def test_an_idle_launcher_costs_next_to_nothing(make_node: MakeNode, script):
    node = make_node()
    node.start()
    node.order(1, [script("import os\nos.close(1)\nos.close(2)\n" + "import time\ntime.sleep(600)")])
    node.pids(1)
    assert node.launcher is not None
    stat = Path(f"/proc/{node.launcher.pid}/stat")

    def ticks() -> int:
        fields = stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, began = ticks(), time.monotonic()
    wait_until(lambda: time.monotonic() - began > 1.5, "a while")
    assert ticks() - before <= 15, "hundredths of a second of processor time in 1.5 s"
