"""The same run on Ray, with a worker killed half way: the same files."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import PATIENCE
from tests.runs.models import perform, results, settings
from vesalius.errors import BadInput
from vesalius.runs import ray_engine
from vesalius.runs.engine import engine_named
from vesalius_bench.circuits import benchmark as circuits

SLOW_MODEL = """
import hashlib, os, time
from pathlib import Path

def reply(request):
    Path(__file__).with_name("asked").open("a").write(f"{os.getpid()}\\n")
    time.sleep(0.2)
    return "answer " + hashlib.sha256(request.messages[-1].text.encode()).hexdigest()[:12]
"""


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BadInput, match=r'engine ray: ray is not installed; run: pip install "vesalius\[ray\]"'):
        next(engine_named("ray")(abs, [1], jobs=1))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One cluster for both steps of a run; tests/runs/test_parts.py lets the engine start and end its own."""
    ray = pytest.importorskip("ray")
    monkeypatch.delenv(ray_engine.ADDRESS, raising=False)
    ray_engine._connect(ray, 2)
    yield
    ray.shutdown()


def kill_a_worker_half_way(asked: Path, killed: list[int]) -> None:
    """Once a few calls were made, the process that made the last one is killed."""
    for _ in range(20 * PATIENCE):
        lines = asked.read_text().split() if asked.exists() else []
        if len(lines) >= 9:
            killed.append(int(lines[-1]))
            os.kill(killed[0], signal.SIGKILL)
            return
        time.sleep(0.05)


@pytest.mark.slow
def test_ray_gives_what_local_processes_give(cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, one of them killed in the middle of a case; grading is a stand-in on both engines."""
    from tests.runs.test_circuits import grade_stub

    monkeypatch.setattr(circuits, "grade_case", grade_stub)
    asked = settings(tmp_path, cases=4)
    (tmp_path / "model.py").write_text(SLOW_MODEL)
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker_half_way, args=(tmp_path / "asked", killed))
    killer.start()
    perform(tmp_path / "ray", asked, engine=engine_named("ray"), jobs=2, max_cost=1000.0)
    killer.join()
    assert killed
    (tmp_path / "asked").unlink()
    perform(tmp_path / "local", asked, engine=engine_named("local"), jobs=2, max_cost=1000.0)
    assert results(tmp_path / "ray") == results(tmp_path / "local")
    assert len(results(tmp_path / "ray")) == 1 + 2 * 4
    assert len(set((tmp_path / "asked").read_text().split())) == 2
