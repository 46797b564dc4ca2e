"""The same run on Ray, with a worker killed half way: the same files."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE
from tests.runs.models import perform, results, settings
from vesalius.errors import BadInput, Failed
from vesalius.runs import ray_engine
from vesalius.runs.engine import engine_named
from vesalius_bench.circuits import benchmark as circuits

SLOW_MODEL = """
import hashlib, os, time
from pathlib import Path
from typing import Any

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


def where_it_runs(case: "OfGpu") -> tuple[int, str]:
    """A case's answer, and the node that gave it; the first try of one case ends its worker."""
    import ray

    if case.mark is not None and not Path(case.mark).exists():
        Path(case.mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return case.number**2, f"{ray.get_runtime_context().get_node_id()} {os.environ.get('CUDA_VISIBLE_DEVICES')}"


@dataclass(frozen=True)
class OfGpu:
    """A case whose model is on one GPU."""

    number: int
    mark: str | None = None
    gpus: int = 1


@pytest.mark.slow
def test_two_nodes_hold_a_replica_a_gpu_and_survive_a_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes on this machine, each with a pretended GPU: every task has one, and the answers are the right ones."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.delenv(ray_engine.ADDRESS, raising=False)
    nodes = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80 * 2**20}
    try:
        cluster = Cluster(initialize_head=True, head_node_args=nodes | {"include_dashboard": False})
    except Exception as error:
        pytest.skip(f"Ray gives a node 30 seconds to start: {str(error).splitlines()[0]}")
    try:
        cluster.add_node(**nodes)
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        cases = [OfGpu(number, str(tmp_path / "killed") if number == 2 else None) for number in range(5)]
        answers = dict(ray_engine.map_cases(where_it_runs, cases, jobs=2))
        assert {case.number: answer[0] for case, answer in answers.items()} == {n: n * n for n in range(5)}
        assert (tmp_path / "killed").exists()
        assert {place.split()[1] for _, place in answers.values()} == {"0"}
        assert len({place for _, place in answers.values()}) == 2, "one of the two nodes was idle"
        with pytest.raises(BadInput, match="the model is on 2 GPUs and no node of the cluster has more than 1"):
            next(ray_engine.map_cases(where_it_runs, [OfGpu(9, gpus=2)], jobs=1))
    finally:
        ray.shutdown()
        cluster.shutdown()


def seen_and_known(case: int) -> tuple[bytes, str | None]:
    """What `/proc` shows of the worker's environment, and the key that it has in memory."""
    return Path("/proc/self/environ").read_bytes(), os.environ.get("SOME_API_KEY")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_ray_that_is_started_shows_no_key_and_its_workers_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.delenv(ray_engine.ADDRESS, raising=False)
    monkeypatch.setenv("SOME_API_KEY", "not to be seen")
    ((_, (seen, known)),) = ray_engine.map_cases(seen_and_known, [0], jobs=1)
    assert b"PATH=" in seen
    assert b"not to be seen" not in seen
    assert known == os.environ["SOME_API_KEY"] == "not to be seen"


def test_a_cluster_that_was_there_is_given_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be of other people; its nodes have the keys that their owner gave them."""

    class There(PretendedRay):
        def is_initialized(self) -> bool:
            return False

        def init(self, **options: object) -> None:
            assert os.environ["RAY_AUTH_TOKEN"] == "of this cluster"

        def shutdown(self) -> None:
            return

    monkeypatch.setenv(ray_engine.ADDRESS, "10.0.0.1:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of this cluster")
    works: list[object] = []
    monkeypatch.setattr(ray_engine, "attempt", lambda work, case: works.append(getattr(work, "secrets", {})))
    monkeypatch.setattr(ray_engine, "_ray", lambda: There([0]))
    assert list(ray_engine.map_cases(twice, [1], jobs=1)) == [(1, None)]
    assert works == [{}]


def test_a_ray_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def init(*where: object, **options: object) -> None:
            raise Exception("The current node timed out during startup.\nThe raylet failed.")

        @staticmethod
        def shutdown() -> None:
            return

    monkeypatch.delenv(ray_engine.ADDRESS, raising=False)
    line = r"Ray did not start on this machine \(The current node timed out during startup\.\); take --engine local"
    with pytest.raises(BadInput, match=line):
        ray_engine._connect(Broken, 2)
    monkeypatch.setenv(ray_engine.ADDRESS, "10.0.0.1:6379")
    with pytest.raises(BadInput, match=r"no cluster at 10\.0\.0\.1:6379"):
        ray_engine._connect(Broken, 2)


class PretendedRay:
    """What the engine asks of Ray, answered here at once; `asked` are the GPUs of every task."""

    class exceptions:
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

    def __init__(self, gpus: list[int], lost: bool = False) -> None:
        self.asked: list[int] = []
        self._gpus, self._lost, self._answers = gpus, lost, {}

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, object]]:
        return [{"Alive": True, "Resources": {"GPU": n} if n else {"CPU": 4}} for n in self._gpus]

    def remote(self, **options: object) -> Callable[[Any], "PretendedRay._Task"]:
        return lambda function: PretendedRay._Task(self, function, 0)

    class _Task:
        def __init__(self, ray: "PretendedRay", function: Any, gpus: int) -> None:
            self.ray, self.function, self.gpus = ray, function, gpus

        def options(self, *, num_gpus: int) -> "PretendedRay._Task":
            return PretendedRay._Task(self.ray, self.function, num_gpus)

        def remote(self, work: Any, case: Any) -> int:
            self.ray.asked.append(self.gpus)
            self.ray._answers[len(self.ray.asked)] = self.function(work, case)
            return len(self.ray.asked)

    def wait(self, tasks: list[int], num_returns: int) -> tuple[list[int], list[int]]:
        if self._lost:
            raise self.exceptions.RayError("the head node has died\nsecond line")
        return tasks[:1], tasks[1:]

    def get(self, task: int) -> Any:
        return self._answers[task]

    def cancel(self, task: int, *, force: bool) -> None:
        return


def twice(case: Any) -> int:
    return 2 * getattr(case, "number", case)


def test_tasks_ask_for_the_gpus_that_their_model_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = PretendedRay([0, 2])
    monkeypatch.setattr(ray_engine, "_ray", lambda: ray)
    cases = [OfGpu(1, gpus=2), OfGpu(2, gpus=1), 5]
    assert dict(ray_engine.map_cases(twice, cases, jobs=2)) == {cases[0]: 2, cases[1]: 4, 5: 10}
    assert ray.asked == [2, 1, 0]
    with pytest.raises(BadInput, match="the model is on 3 GPUs and no node of the cluster has more than 2"):
        next(ray_engine.map_cases(twice, [OfGpu(9, gpus=3)], jobs=1))


def test_a_cluster_that_is_lost_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "_ray", lambda: PretendedRay([0], lost=True))
    with pytest.raises(Failed, match=r"^engine ray: the cluster was lost \(the head node has died\); the same command"):
        list(ray_engine.map_cases(twice, [1, 2], jobs=1))
