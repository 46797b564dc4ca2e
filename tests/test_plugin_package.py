"""Plug-ins by entry points: an installed package with one of each kind, each used, and broken packages."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.model.tiny_gpt2 import write_tiny_gpt2
from vesalius import api
from vesalius.consent import VARIABLE
from vesalius.discovery.method import REGISTERED as METHODS
from vesalius.documents.base import REGISTERED
from vesalius.documents.catalogue import Listing
from vesalius.documents.discovery import Discovery
from vesalius.documents.view import Text
from vesalius.errors import BadInput, Failed
from vesalius.plugins import INTERPRETERS, SCIENTISTS, find_plugin, named_function, plugin_names

ROOT = Path(__file__).parents[1]
PACKAGE = "vesalius_example_plugin"
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example package, installed as any other; what it registered is forgotten after the tests of this file."""
    place = tmp_path_factory.mktemp("site")
    source = shutil.copytree(ROOT / "examples" / "plugin", tmp_path_factory.mktemp("source") / "plugin")
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(place), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named pip" in done.stderr or "hatchling" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    yield place
    for kind in [name for name, made in REGISTERED.items() if made.__module__.startswith(PACKAGE)]:
        del REGISTERED[kind]
    for module in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[module]


@pytest.fixture
def offered(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package on the path, of this process and of its workers."""
    monkeypatch.syspath_prepend(site)
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), before])))
    monkeypatch.setenv(VARIABLE, "vesalius-example-plugin")
    return site


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    tokenizer = word_tokenizer()
    write_tiny_gpt2(tmp_path / "tiny", d_vocab=tokenizer.size, n_ctx=48, bos=BOS)
    tokenizer._backend.save(str(tmp_path / "tiny" / "tokenizer.json"))
    return tmp_path / "tiny"


def test_all_are_listed_with_their_package(offered: Path) -> None:
    rows = [row for row in api.plugins(check=True) if row["package"] == "vesalius-example-plugin"]
    assert [(row["kind"], row["name"], row["problem"]) for row in rows] == [
        ("scientist", "by-kind", None),
        ("interpreter", "two-points", None),
        ("method", "write-norm", None),
        ("behaviour", "days", None),
        ("model loader", "example-models", None),
        ("judge", "shared-words", None),
        ("document kind", "model_shape", None),
        ("command", "model-shape", None),
        ("verb", "model_shape", None),
    ]


def test_a_plugin_adds_a_verb_a_kind_of_document_and_a_command(offered: Path, tmp_path: Path) -> None:
    import vesalius as ves

    shape = ves.model_shape("3")
    assert f"{shape.layers} layers" in str(shape)
    assert api.schema("model_shape")["title"] == "ModelShape"
    command = [sys.executable, "-m", "vesalius", "model-shape", "3", "--out", str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, str(shape)), done.stderr
    shape.model_copy(update={"heads": shape.heads + 1}).save(tmp_path / "b")
    assert [(row.path, row.kind) for row in ves.results(tmp_path).results if row.kind == "model-shape"]
    assert ves.diff(tmp_path / "a", tmp_path / "b").metrics["heads"].difference == 1
    assert ves.report(tmp_path / "a").is_file()


@pytest.mark.slow
def test_scientist_and_judge_go_through_the_circuits_bench(offered: Path, tmp_path: Path) -> None:
    card = api.bench_circuits(
        scientist="by-kind", judges=["shared-words"], ids=["3"], circuit_from="write-norm", jobs=1, out=tmp_path
    )
    assert (card.n, card.n_error, card.subject) == (1, 0, "by-kind")
    assert card.metrics["tag_accuracy"].n > 0
    assert card.metrics["description_quality"].value == 0  # it says nothing about any component
    judged = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (said,) = [record["judged"] for record in judged if record["event"] == "judged"]
    assert said["judges"] == ["shared-words"]
    opinions = [one for item in said["items"] for judgement in item["judgements"] for one in judgement["opinions"]]
    assert opinions
    assert all(one["reason"].endswith("of the words are there") and one["error"] == "" for one in opinions)


@pytest.mark.slow
def test_the_method_goes_through_the_discovery_bench(offered: Path, tmp_path: Path) -> None:
    card = api.bench_discovery(methods=["write-norm"], ids=["3"], n=4, jobs=1, out=tmp_path)
    assert card.n_error == 0
    figures = card.as_data()["methods"]["write-norm"]
    assert (figures["forwards"], figures["node_auroc"]["n"]) == (1, 1)


@pytest.mark.slow
def test_the_interpreter_goes_through_the_functions_bench(offered: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"category": "numeric", "count": 3, "jobs": 1, "progress": False}
    card = api.bench_functions(interpreter="two-points", out=tmp_path, **options)
    assert (card.n, card.n_error, card.metrics["queries"].value) == (3, 0, 2)


def test_loader_and_behaviour_make_a_specimen(offered: Path, tiny_model: Path) -> None:
    import vesalius as ves

    specimen = ves.load(f"example-models:{tiny_model}", behaviour="days")
    assert (specimen.behaviour, specimen.source) == ("days", f"example-models:{tiny_model}")
    direct = ves.load(tiny_model, behaviour="days")
    assert specimen.examples == direct.examples
    found = ves.discover(specimen, "write-norm", n=4, force=True, checks=False)
    assert found.method == "write-norm"
    assert {str(part) for part, _ in found.circuit.ranked()} == {str(part) for part in specimen.model.components}


def test_a_name_that_does_not_exist_is_refused_with_those_of_plugins(offered: Path, tmp_path: Path) -> None:
    refusals: list[tuple[Callable[[], Any], str]] = [
        (lambda: api.bench_circuits(scientist="nobody", out=tmp_path), "by-kind"),
        (lambda: api.bench_functions(category="numeric", interpreter="nobody", count=1, out=tmp_path), "two-points"),
        (lambda: api.bench_discovery(methods=["nothing"], ids=["3"], out=tmp_path), "write-norm"),
        (lambda: api.discover("3", "nothing"), "write-norm"),
        (lambda: api.load("smollm2-135m", behaviour="nothing"), "days"),
        (lambda: api.load("nothing"), "example-models:..."),
        (lambda: api.bench_circuits(judges=["nobody"], ids=["3"], out=tmp_path), "shared-words"),
    ]
    for call, name in refusals:
        with pytest.raises(BadInput, match=name):
            call()


# Packages written by hand: what is wrong with them must stay theirs.


def package(site: Path, name: str, entries: dict[str, str], code: str = "") -> None:
    """A package as an installer leaves it, with entry points `group:name` to functions of one module; trusted."""
    os.environ[VARIABLE] += f",{name}"
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(code)
    folder = site / f"{module}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [f"[vesalius.{key.partition(':')[0]}]\n{key.partition(':')[2]} = {to}\n" for key, to in entries.items()]
    (folder / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for packages; what they registered is forgotten after the test."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv(VARIABLE, "")
    yield site
    for name in [
        name for name, one in sys.modules.items() if (getattr(one, "__file__", "") or "").startswith(str(site))
    ]:
        for registered in (REGISTERED, METHODS):
            for kind in [kind for kind, made in registered.items() if made.__module__ == name]:
                del registered[kind]
        del sys.modules[name]


def test_a_plugin_that_cannot_be_imported_names_its_package_and_leaves_the_others(packages: Path) -> None:
    package(packages, "broken-pack", {"interpreters:bad": "broken_pack:f"}, "1 / 0")
    package(packages, "sound-pack", {"interpreters:good": "sound_pack:f"}, "def f(box, *, seed): ...")
    assert plugin_names(INTERPRETERS, ["builtin"])[-2:] == ["bad", "good"]
    assert callable(named_function(INTERPRETERS, "good", ["builtin"]))
    with pytest.raises(BadInput) as caught:
        named_function(INTERPRETERS, "bad", ["builtin"])
    assert str(caught.value) == (
        "interpreter 'bad': the plug-in of package broken-pack 1.0 cannot be loaded (ZeroDivisionError: division by "
        "zero); fix or uninstall broken-pack"
    )
    problems = {row["name"]: row["problem"] for row in api.plugins(check=True)}
    assert problems["good"] is None
    assert "broken-pack" in problems["bad"]


@pytest.mark.parametrize(
    ("target", "problem"),
    [("no_such_module:f", "ModuleNotFoundError"), ("faulty:g", "AttributeError"), ("faulty:leaves", "")],
)
def test_other_faults_are_one_line_too(target: str, problem: str, packages: Path) -> None:
    package(packages, "faulty", {"interpreters:bad": target}, "leaves = 3")
    with pytest.raises(BadInput, match=rf"package faulty 1\.0 .*{problem}") as caught:
        named_function(INTERPRETERS, "bad", [])
    assert "\n" not in str(caught.value)


def test_a_built_in_name_cannot_be_taken(packages: Path) -> None:
    package(packages, "taker", {"scientists:builtin": "taker:f", "behaviours:ioi": "taker:f"}, "raise RuntimeError")
    assert "builtin" not in plugin_names(SCIENTISTS, ["builtin", "hyve"])
    assert find_plugin(SCIENTISTS, "builtin", ["builtin", "hyve"]) is None
    rows = {row["name"]: row["problem"] for row in api.plugins(check=True) if row["package"] == "taker"}
    assert rows == {"builtin": "builtin is a built-in name", "ioi": "ioi is a built-in name"}
    assert "ioi" in [row["name"] for row in api.behaviours()]


def test_a_name_of_two_packages_is_refused(packages: Path) -> None:
    for name in ("one-pack", "two-pack"):
        package(packages, name, {"interpreters:same": f"{name.replace('-', '_')}:f"}, "def f(box, *, seed): ...")
    assert "same" not in plugin_names(INTERPRETERS, [])
    with pytest.raises(BadInput, match="packages one-pack, two-pack both offer it"):
        find_plugin(INTERPRETERS, "same", [])


def test_metadata_that_cannot_be_read_breaks_nothing(packages: Path) -> None:
    package(packages, "sound-pack", {"interpreters:good": "sound_pack:f"}, "def f(box, *, seed): ...")
    damaged = packages / "damaged-1.0.dist-info"
    damaged.mkdir()
    (damaged / "METADATA").write_bytes(b"\xff\xfe")
    (damaged / "entry_points.txt").write_bytes(b"\xff[[[\x00")
    assert "good" in plugin_names(INTERPRETERS, [])


@pytest.mark.parametrize("name", ["a b", "a/b", "../up"])
def test_a_name_that_no_file_can_have_is_hidden(name: str, packages: Path) -> None:
    package(packages, "odd-pack", {f"interpreters:{name}": "odd_pack:f"}, "def f(box, *, seed): ...")
    assert plugin_names(INTERPRETERS, []) == []
    (row,) = [row for row in api.plugins() if row["package"] == "odd-pack"]
    assert "letters, digits" in row["problem"]


def test_a_behaviour_that_is_none_and_a_broken_one_leave_the_list_whole(packages: Path) -> None:
    package(packages, "behaving", {"behaviours:empty": "behaving:three"}, "three = 3")
    with pytest.raises(BadInput, match=r"package behaving 1\.0 is no ves\.Behaviour of the name 'empty'"):
        api.load("smollm2-135m", behaviour="empty")
    with pytest.warns(UserWarning, match="behaving"):
        names = [row["name"] for row in api.behaviours()]
    assert "ioi" in names
    assert "empty" not in names


def test_what_is_wrong_with_a_plugin_is_in_the_list_that_is_printed(packages: Path) -> None:
    entries = {"scientists:torn": "listed:nothing", "documents:odd": "listed:three", "commands:discover": "listed:f"}
    entries |= {"discovery_methods:other": "listed:Other", "documents:sound_kind": "listed:Sound"}
    code = (
        "from vesalius.discovery.method import Method\nfrom vesalius.documents.base import ResultDocument\nthree = 3\n"
        'def f(): ...\nclass Other(Method):\n    name = "another-name"\n'
        'class Sound(ResultDocument, kind="sound_kind"):\n    size: int = 0\n'
    )
    package(packages, "listed", entries, code)
    api.schema("sound_kind")  # imported before: its kind is still its own
    listing = Listing(row for row in api.plugins(check=True) if row["package"] == "listed")
    usable = {row["name"]: row["usable"] for row in listing.view().sheet().records()}
    assert usable == {"torn": False, "other": False, "odd": False, "sound_kind": True, "discover": False}
    said = " ".join(text for one in listing.view().sections if isinstance(one, Text) for text in one.words)
    for problem in ("no attribute 'nothing'", "no document whose class", "of the name 'another-name'", "built-in"):
        assert problem in said


#: A method by the body of its function, and what is said about it.
METHODS_GONE_WRONG = {
    "raise KeyError('what')": r"raised KeyError at gone\.py:\d+: 'what'",
    "return None": "returned a NoneType instead of a dict of names and scores, or Scores",
    "return Scores({}, {}, 1, 'x')": "scored no component",
    "return Scores({c: float('nan') for c in parts}, {}, 1, 'x')": "gave L0H0 the score nan",
    "return Scores({c: torch.ones(()) for c in parts}, {}, 1, 'x')": "gave L0H0 the score tensor",
    "return Scores({str(c): 1.0 for c in parts}, {}, 1, 'x')": "scored 'L0H0', which the model does not have",
    "return Scores({c: 1.0 for c in parts}, {}, float('nan'), 'x')": "took nan passes",
    "return Scores({c: 1.0 for c in parts}, {}, 1, None)": "has the unit None",
    "return Scores({c: 1.0 for c in parts}, {}, 1, 'x', torch.ones(3, 2))": r"of the shape \(3, 2\); give \(4, 10\)",
}


@pytest.mark.parametrize("body", METHODS_GONE_WRONG)
def test_a_method_that_goes_wrong_is_one_line_that_names_its_package(body: str, packages: Path) -> None:
    head = "import torch\nfrom vesalius.discovery.method import Scores\n"
    code = f"{head}def f(specimen, material, *, seed):\n    parts = specimen.model.components\n    {body}\n"
    package(packages, "gone", {"discovery_methods:gone": "gone:f"}, code)
    with pytest.raises((BadInput, Failed), match=METHODS_GONE_WRONG[body]) as caught:
        api.discover("frac_prevs", "gone", n=4, checks=False)
    assert "the plug-in of package gone 1.0" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_scientist_that_goes_wrong_is_one_line_too(packages: Path) -> None:
    code = (
        "def breaks(task, backbone):\n    raise ValueError('two\\nlines')\ndef text(task, backbone):\n    return 'x'\n"
    )
    package(packages, "wrongly", {"scientists:breaks": "wrongly:breaks", "scientists:text": "wrongly:text"}, code)
    wrong = {
        "breaks": r"package wrongly 1\.0 raised ValueError at wrongly\.py:2: two lines; fix or uninstall wrongly",
        "wrongly:breaks": r"'wrongly:breaks': raised ValueError at wrongly\.py:2: two lines; fix that function",
        "text": "'text' returned a str; return a vesalius.explanations.scientists.Explained",
    }
    for scientist, said in wrong.items():
        with pytest.raises(Failed, match=said):
            api.explain("frac_prevs", scientist=scientist)


def test_a_loader_and_a_behaviour_that_raise_name_their_package(packages: Path) -> None:
    code = "def load(what, *, dtype):\n    raise OSError('gone')\ndef make():\n    raise OSError('gone')\n"
    package(packages, "raising", {"model_loaders:ours": "raising:load", "behaviours:mine": "raising:make"}, code)
    with pytest.raises(Failed, match=r"package raising 1\.0 raised OSError at raising\.py:2: gone"):
        api.load("ours:any")
    with pytest.raises(Failed, match=r"package raising 1\.0 raised OSError at raising\.py:4: gone"):
        api.load("arithmetic", behaviour="mine")
    with pytest.warns(UserWarning, match="raising"):
        assert "ioi" in [row["name"] for row in api.behaviours()]


def test_a_result_whose_view_is_broken_leaves_the_list_whole(packages: Path, tmp_path: Path) -> None:
    code = (
        "from vesalius.documents.base import ResultDocument\nfrom vesalius.documents.view import Answer, Sheet, View\n"
        'class Plain(ResultDocument, kind="plain_kind"):\n    FILE = "plain.json"\n    size: int = 7\n'
        'class Torn(Plain, kind="torn_kind"):\n    FILE = "torn.json"\n    def view(self):\n'
        '        raise KeyError("x")\n'
        'class Said(Plain, kind="said_kind"):\n    FILE = "said.json"\n    def view(self):\n        return "text"\n'
        'class Bent(Plain, kind="bent_kind"):\n    FILE = "bent.json"\n    def view(self):\n'
        '        return View("t", Answer("a"), [Sheet(("a", "b"), [(1, 2), (3,)])])\n'
    )
    kinds = {"plain": "Plain", "torn": "Torn", "said": "Said", "bent": "Bent"}
    package(packages, "shown", {f"documents:{name}_kind": f"shown:{cls}" for name, cls in kinds.items()}, code)
    for name in kinds:
        (tmp_path / "r" / name).mkdir(parents=True)
        (tmp_path / "r" / name / f"{name}.json").write_text("{}")
    import vesalius as ves

    states = {row.path: (row.state, row.problem) for row in ves.results(tmp_path / "r").results}
    assert states["plain"][0] == "finished"
    page = ves.report(tmp_path / "r" / "plain").read_text()
    assert re.search(r"size\W.*\b7\b", page, re.DOTALL)  # without a view of its own it shows its fields
    said = {
        "torn": r"view of shown\.Torn: raised KeyError at shown\.py:9: 'x'",
        "said": r"view of shown\.Said: returned a str",
        "bent": "a table has 2 columns and 1 cells in row 2",
    }
    for name, problem in said.items():
        assert states[name][0] == "unreadable"
        with pytest.raises(Failed, match=problem):
            ves.report(tmp_path / "r" / name)


def test_a_command_that_raises_names_its_package(packages: Path) -> None:
    package(packages, "failing", {"commands:fails": "failing:f"}, "def f():\n    raise ValueError('two\\nlines')\n")
    done = subprocess.run(
        [sys.executable, "-m", "vesalius", "fails"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(packages)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "vesalius: command 'fails': the plug-in of package failing 1.0 raised ValueError at failing.py:2: two lines; "
        "fix or uninstall failing\n"
    )


def test_options_of_a_method_of_its_own_are_given_after_its_name(packages: Path) -> None:
    code = (
        "from dataclasses import dataclass\nfrom vesalius.discovery.method import Method, Scores\n"
        "from vesalius.options.records import option\n"
        '@dataclass(frozen=True)\nclass Flat(Method):\n    name = "flat"\n    level: float = option(1.0, "Score.")\n'
        '    rounds: int = option(1, "Passes.")\n    def score(self, given):\n'
        '        return Scores({c: self.level for c in given.specimen.model.components}, {}, self.rounds, "x")\n'
        "    def cost(self, work):\n        return self.rounds\n"
        '@dataclass(frozen=True)\nclass Needy(Flat):\n    name = "needy"\n    size: int = field(kw_only=True)\n'
    ).replace("import dataclass", "import dataclass, field")
    package(
        packages, "flatly", {"discovery_methods:flat": "flatly:Flat", "discovery_methods:needy": "flatly:Needy"}, code
    )
    found = api.discover("frac_prevs", "flat:level=2:rounds=3", n=4, checks=False)
    assert ({score for _, score in found.circuit.ranked()}, found.forwards) == ({2.0}, 3)
    line = "vesalius discover frac_prevs --method flat:level=2.0:rounds=3 --n 4 --quick --seed 0"
    assert found.request.command_line() == line
    assert api.discover("frac_prevs", "flat", level=2, rounds=3, n=4, checks=False).request == found.request
    again = api.rerun(found)
    assert isinstance(again, Discovery)
    assert again.circuit == found.circuit
    assert api.plan("discover", "frac_prevs", "flat:rounds=7", n=4, checks=False).forwards == 7
    refused = {
        "flat:level": "'level' is no option of flat; its options are `level`, `rounds`",
        "flat:level=high": "level='high' is not a number; give method 'flat' one",
        "flat:rounds=1.5": "rounds='1.5' is not a whole number",
        "flat:levle=2": "its options are `level`, `rounds`",
        "needy": "method 'needy' needs `size`; give needy:size=...",
    }
    for name, reason in refused.items():
        with pytest.raises(BadInput, match=reason):
            api.discover("frac_prevs", name, n=4, checks=False)


@pytest.mark.parametrize("method", [5, ["eap"], int])
def test_what_is_no_method_is_refused(method: Any) -> None:
    with pytest.raises(BadInput, match="is no method; give a name, a Method or a function that scores"):
        api.discover("frac_prevs", method)
