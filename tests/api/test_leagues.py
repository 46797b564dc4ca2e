"""Leagues: the key cannot be read from the files, scores against hand-worked answers, and refusals.

The two circuits are generated tasks of seed 62001 that were trained before: one counts the positions that share the
token (L0H0 and L0_MLP), the other marks three tokens (L0_MLP).
"""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

import vesalius as ves
from vesalius import api
from vesalius.circuits.specimens import Sampler
from vesalius.components import Component
from vesalius.documents import Circuit
from vesalius.documents.base import Ran
from vesalius.documents.explanation import ComponentExplanation, Evidence, Executable, Explanation
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, Failed
from vesalius.intervene.edges import EdgeGraph
from vesalius.rasp import Program, roles_of
from vesalius.rasp.document import from_document, to_document
from vesalius_bench.league import making as league_making
from vesalius_bench.league import scoring
from vesalius_bench.league.documents import League, LeagueRow, open_key
from vesalius_bench.league.scoring import ScoredCircuit, StatedAgain, circuit_score_metrics, counting_failures
from vesalius_bench.sealing import SCRYPT
from vesalius_functions.suite import Suite
from vesalius_truth import making
from vesalius_truth.making import key_program
from vesalius_truth.training import gate
from vesalius_truth.training.fit import train_group

pytest.importorskip("cryptography")
PASSPHRASE = "correct horse battery"
COUNTING, MARKING = "generated_62001_006", "generated_62001_000"


@pytest.fixture(scope="module", autouse=True)
def _quick_passphrases() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCRYPT, "n", 16)
        yield


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with tarfile.open(Path(__file__).with_name("two_circuits.tgz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def league(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("league") / "autumn"
    made = api.make_league(out=place, circuits=2, functions=1, passphrase=PASSPHRASE, specimens=sources)
    assert made == League.read(place / "league.json")
    return place


@pytest.fixture
def own(league: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(league, tmp_path / "league"))


def opened(league: Path) -> dict[str, Any]:
    return open_key(league, League.read(league / "league.json"), PASSPHRASE, None)


def leaves(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for value in data.values():
            yield from leaves(value)
    elif isinstance(data, list):
        for value in data:
            yield from leaves(value)
    elif isinstance(data, str):
        yield data


def right_explanation(case: str, entry: dict[str, Any], **update: Any) -> Explanation:
    """The answer of the key, said as a scientist would."""
    program = entry["program"]
    carriers = {str(placed.component): placed.variables for placed in key_program_of(entry).components}
    parts = tuple(
        ComponentExplanation(id=part, tag=role, tag_by_experiment=role, note="as the key", verdict="supported")
        for part, role in entry["roles"].items()
    )
    fields = {"specimen": case, "scientist": "oracle", "components": parts, "information_flow": "", "seed": 0}
    fields |= {"task_description": "", "seconds": 0.0, "executable": Executable(program=program, carriers=carriers)}
    return Explanation(**{**fields, **update})


def key_program_of(entry: dict[str, Any]) -> Program:
    return from_document(entry["program"])


def test_no_file_of_the_league_gives_the_key_away(league: Path, sources: Path) -> None:
    key = opened(league)
    written = {path: path.read_bytes() for path in league.rglob("*") if path.is_file()}
    assert {"league.json", "key.json", "specimen.json", "model.json", "model.safetensors"} == {p.name for p in written}
    everything = b"\n".join([*written.values(), *(str(p.relative_to(league)).encode() for p in written)])
    assert key["seed"].encode() not in everything
    public = {"c01", "c02", "map", "tokens", *(t for e in key["circuits"].values() for t in e["program"]["vocab"])}
    secret = {COUNTING, MARKING, "62001", "is_member", "occurrences", "AGGREGATOR", "MAPPER", "INDICATOR"}
    secret |= {text for text in leaves(key) if text not in public}
    for path in sources.rglob("spec.py"):
        secret |= {line.strip() for line in path.read_text().splitlines() if len(line.strip()) > 12}
    for category, drawn in key["functions"].items():
        assert drawn["seed"] >= 2**64  # fewer bits could be tried out against what the functions answer
        for function in Suite(category, drawn["seed"], drawn["count"]).functions():
            secret |= {text for text in leaves(json.loads(json.dumps(function.truth(), default=str))) if len(text) > 3}
    # A short text may stand in weights and ciphers by chance: there it is looked for as a JSON string, outside them.
    readable = b"\n".join(text for path, text in written.items() if path.name not in ("key.json", "model.safetensors"))
    # Samplers of inputs are public; a function's noise may have the same name.
    for text in secret - {"", *get_args(Sampler)}:
        if len(text) > 7:
            assert text.encode() not in everything, text
        else:
            assert json.dumps(text).encode() not in readable, text
    assert not (league / "making").exists()


def test_the_order_and_the_names_of_circuits_say_nothing(league: Path) -> None:
    document = League.read(league / "league.json")
    assert [one.id for one in document.circuits] == ["c01", "c02"]
    for circuit in document.circuits:
        card = json.loads((league / "specimens" / circuit.id / "specimen.json").read_text())
        assert (card["id"], card["name"], card["made_by"]) == (circuit.id, circuit.id, "vesalius league make")
        assert set(card["gate"]) <= {"n", "accuracy"}


def test_the_answers_of_the_key_score_everything(own: Path, tmp_path: Path) -> None:
    key = opened(own)
    for case, entry in key["circuits"].items():
        (tmp_path / "oracle").mkdir(exist_ok=True)
        right_explanation(case, entry).write(tmp_path / "oracle" / f"{case}.json")
    submitted = api.submit_league(own, explanations=tmp_path / "oracle")
    assert (submitted.name, submitted.cases, submitted.complete) == ("oracle", ("c01", "c02"), True)
    row = api.score_league(own, "oracle", passphrase=PASSPHRASE)
    values = {name: metric.value for name, metric in row.metrics.items()}
    assert {values[name] for name in ("tag_accuracy", "power", "power_tags", "task_exact")} == {1.0}
    assert (values["false_support"], values["false_support_tags"], values["coverage"]) == (0.0, 0.0, None)
    assert LeagueRow.read(own / "rows" / "oracle.json") == row
    page = (own / "rows" / "oracle.html").read_text()
    assert "<h1>League: oracle</h1>" in page
    assert "false_support" in page


def test_nulls_earn_what_the_key_says(own: Path, sources: Path) -> None:
    """Two circuits, three components: how many are MAPPER follows from the two programs."""
    roles = [str(role) for name in (COUNTING, MARKING) for role in roles_of(key_program(sources / name)).values()]
    assert len(roles) == 3
    rows = {}
    for scientist in ("always-MAPPER", "empty"):
        api.submit_league(own, scientist=scientist)
        rows[scientist] = api.score_league(own, scientist, passphrase=PASSPHRASE).metrics
    share = roles.count("MAPPER") / 3
    assert rows["always-MAPPER"]["tag_accuracy"].value == pytest.approx(share, abs=1e-6)
    assert rows["always-MAPPER"]["false_support_tags"].value == pytest.approx(1 - share, abs=1e-6)
    assert rows["always-MAPPER"]["false_support"].value == pytest.approx(1.0)
    assert rows["empty"]["tag_accuracy"].value == pytest.approx(0.0)
    assert (rows["empty"]["false_support"].value, rows["empty"]["power"].value) == (None, 0.0)
    table = api.league_table(own)
    assert [row.name for row in table.rows] == ["always-MAPPER", "empty"]


@pytest.mark.slow
def test_the_built_in_scientist_and_its_stated_values(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is repeated counts once, and is measured again on inputs that only the key tells."""
    seeds: list[int] = []
    true_retester = scoring.Retester

    def watched(*given: Any, seed: int) -> Any:
        seeds.append(seed)
        return true_retester(*given, seed=seed)

    monkeypatch.setattr(scoring, "Retester", watched)
    api.submit_league(own, scientist="builtin", interpreter="builtin", progress=False)
    place = Path(shutil.copytree(own / "submissions" / "builtin", own / "submissions" / "loud"))
    for path in place.glob("explanations/*.json"):
        explanation = json.loads(path.read_text())
        for part in explanation["components"]:
            part["claims"] = part["claims"] * 3
        path.write_text(json.dumps(explanation))
    submission = json.loads((place / "submission.json").read_text())
    (place / "submission.json").write_text(json.dumps({**submission, "name": "loud", "interpreter": None}))
    row, loud = (api.score_league(own, name, passphrase=PASSPHRASE, progress=False) for name in ("builtin", "loud"))
    assert row.metrics["coverage"].n == row.metrics["bias"].n > 0
    assert abs(row.metrics["bias"].value) < 0.1  # both are shares, measured on hundreds of inputs
    for name in ("coverage", "interval_width", "bias"):
        assert loud.metrics[name] == row.metrics[name]
    salt = opened(own)["salt"]
    digests = [hashlib.sha256(f"{salt}/{case}/scoring".encode()).hexdigest() for case in ("c01", "c02")]
    assert seeds == [int(digest, 16) % 2**30 for digest in digests] * 2
    assert {"functions.numeric.success", "functions.strings.exact_match"} <= set(row.metrics)
    assert row.metrics["functions.numeric.success"].n == 1
    with pytest.raises(BadInput, match="is a complete submission"):
        api.submit_league(own, scientist="builtin", interpreter="builtin")
    with pytest.raises(BadInput, match="holds another submission"):
        api.submit_league(own, scientist="builtin", seed=1)


def test_giving_up_does_not_raise_a_score_and_a_scorer_chooses_what_runs(own: Path) -> None:
    api.submit_league(own, scientist="always-MAPPER", progress=False)
    place = own / "submissions" / "always-MAPPER" / "submission.json"
    before = api.score_league(own, "always-MAPPER", passphrase=PASSPHRASE, progress=False)
    submission = json.loads(place.read_text())
    for case in ("c01", "c02"):
        said = [{"case": name, "reason": "time " * 1000} for name in (case, case, "c99", "functions.numeric")]
        place.write_text(json.dumps({**submission, "errors": said, "seconds": -1e9}))
        (own / "rows" / "always-MAPPER.json").unlink()
        after = api.score_league(own, "always-MAPPER", passphrase=PASSPHRASE, progress=False)
        assert (after.n, after.n_error) == (before.n, 1)
        assert [error.case for error in after.errors] == [case]
        assert len(after.errors[0].reason) <= 300
        assert after.seconds >= 0
        assert after.metrics["tag_accuracy"].value <= before.metrics["tag_accuracy"].value
    (own / "rows" / "always-MAPPER.json").unlink()
    place.write_text(json.dumps({**submission, "interpreter": "oracle"}))
    with pytest.raises(BadInput, match="is the oracle"):
        api.score_league(own, "always-MAPPER", passphrase=PASSPHRASE)
    place.write_text(json.dumps({**submission, "interpreter": "command:touch /tmp/ran"}))
    with pytest.raises(BadInput, match="a program that would run here"):
        api.score_league(own, "always-MAPPER", passphrase=PASSPHRASE)


def test_an_interpreter_that_cannot_run_is_refused_before_any_work(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api.submit_league(own, scientist="empty", interpreter="no_such_package:look", progress=False)
    monkeypatch.setattr(scoring, "_score_circuits", lambda *_: pytest.fail("circuits were scored"))
    with pytest.raises(BadInput, match="there is no module no_such_package"):
        api.score_league(own, "empty", passphrase=PASSPHRASE, interpreter="no_such_package:look", progress=False)

    def cannot(*_: Any, **__: Any) -> None:
        raise Failed("this kernel cannot contain commands")

    place = own / "submissions" / "empty" / "submission.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "interpreter": "builtin"}))
    monkeypatch.setattr(scoring, "Confined", cannot)
    with pytest.raises(Failed, match="cannot contain"):
        api.score_league(own, "empty", passphrase=PASSPHRASE, progress=False)


def test_an_interpreter_that_fails_on_every_function_of_a_category_earns_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(**_: Any) -> None:
        raise Failed("no function could be interpreted and graded")

    monkeypatch.setattr(scoring, "bench_functions", fails)
    drawn = {"numeric": {"seed": 2**70, "count": 4}, "strings": {"seed": 2**70, "count": 3}}
    checked = Ran(contained=True, isolation="contained by all")
    options: dict[str, Any] = {"report": lambda *_: None, "checked": checked, "unsafe_sandbox": False}
    with pytest.warns(ves.Note, match="command:/bin/true on functions of strings: no function could"):
        metrics, errors, ran = scoring._function_metrics("command:/bin/true", drawn, **options)
    assert {name: (one.value, one.n) for name, one in metrics.items()} == {
        "functions.numeric.success": (0.0, 4),
        "functions.strings.exact_match": (0.0, 3),
        "functions.strings.unit_test": (0.0, 3),
    }
    assert [error.case for error in errors] == ["functions.numeric", "functions.strings"]
    assert ran == checked


def test_a_supported_component_outside_the_circuit_is_false_support(own: Path, tmp_path: Path) -> None:
    key = opened(own)
    folder = tmp_path / "overclaimer"
    folder.mkdir()
    for case, entry in key["circuits"].items():
        right = right_explanation(case, entry)
        outside = next(
            str(c) for c in ves.load(own / "specimens" / case).model.components if str(c) not in entry["roles"]
        )
        more = right.components[0].model_copy(update={"id": outside})
        right.model_copy(update={"components": (*right.components, more)}).write(folder / f"{case}.json")
    api.submit_league(own, explanations=folder)
    metrics = api.score_league(own, "overclaimer", passphrase=PASSPHRASE).metrics
    assert metrics["false_support"].value == pytest.approx(2 / 5, abs=1e-6)  # 3 components of the key and 2 outside
    assert metrics["power"].value == pytest.approx(1.0)


def test_stated_agreement_is_held_against_fresh_inputs(own: Path, tmp_path: Path) -> None:
    """The program is right, so agreement is about 1; who states 0.5 is biased by -0.5, and no interval covers it."""
    folder = tmp_path / "modest"
    folder.mkdir()
    stated = Evidence(experiment="e", measure="m", value=0.5, low=0.45, high=0.55, n=9, rule="r", seed=0)
    for case, entry in opened(own)["circuits"].items():
        right_explanation(case, entry, program_agreement=stated).write(folder / f"{case}.json")
    api.submit_league(own, explanations=folder)
    metrics = api.score_league(own, "modest", passphrase=PASSPHRASE).metrics
    assert metrics["bias"].value == pytest.approx(-0.5, abs=0.03)
    assert (metrics["coverage"].value, metrics["coverage"].n) == (0.0, 2)


def test_an_interval_holds_what_is_measured_again() -> None:
    assert StatedAgain(0.5, 0.4, 0.6, 0.45).covered
    assert not StatedAgain(0.5, 0.4, 0.6, 0.61).covered
    assert StatedAgain(1.0, 1.0, 1.0, 0.99995).covered  # figures are recorded to four places


@pytest.mark.parametrize(
    ("value", "low", "high"), [(0.5, -1e9, 1e9), (0.5, 0.9, 0.1), (0.5, 0.6, 0.9), (7.0, 0.0, 1.0), (0.5, 0.0, 1.2)]
)
def test_what_is_not_an_interval_of_the_quantity_covers_nothing(value: float, low: float, high: float) -> None:
    pair = StatedAgain(value, low, high, 0.7, least=0.0)
    assert not pair.covered
    assert (pair.width, abs(pair.difference) <= 1) == (1.0, True)


def test_a_wide_interval_covers_and_shows_its_width() -> None:
    assert StatedAgain(0.5, 0.0, 1.0, 0.7, least=0.0).covered
    assert StatedAgain(0.5, 0.0, 1.0, 0.7, least=0.0).width == 1.0
    assert StatedAgain(0.5, 0.0, 0.5, 0.7, least=-1.0).width == 0.25
    assert StatedAgain(1e30, 0.0, 1.0, 0.7).difference == 1.0


def test_functions_that_failed_count_as_wrong() -> None:
    """9 of 10 right, and 10 more failed: 9 of 20."""
    counted = counting_failures(Metric.of_share(9, 10, baseline=0.1), 10)
    assert (counted.value, counted.n, counted.baseline) == (0.45, 20, 0.1)
    assert counting_failures(Metric.of_share(9, 10), 0).value == 0.9


def test_discovered_circuits_by_hand(own: Path) -> None:
    scored = [ScoredCircuit("a", 1.0, None, true=2, chosen=3, right=1), ScoredCircuit("b", 0.5, None, 2, 1, 1)]
    metrics = circuit_score_metrics(scored)
    assert metrics["circuit_recall"].value == pytest.approx(2 / 4)
    assert metrics["circuit_precision"].value == pytest.approx(2 / 4)
    assert metrics["false_support"].value == pytest.approx(2 / 4)
    assert metrics["node_auroc_mean"].value == pytest.approx(0.75)
    api.submit_league(own, method="eap", n=8)
    row = api.score_league(own, "eap", passphrase=PASSPHRASE)
    assert (row.kind, row.n) == ("circuits", 2)
    place = own / "submissions" / "eap" / "circuits"
    chosen = {one.id: set(map(str, Circuit.read(place / f"{one.id}.json").chosen())) for one in row.circuits}
    found = sum(len(chosen[case] & set(entry["roles"])) for case, entry in opened(own)["circuits"].items())
    assert row.metrics["circuit_recall"].value == pytest.approx(found / 3, abs=1e-6)


def submitted_circuits(league: Path, name: str, scores: Callable[[str], dict[str, float]]) -> Path:
    """A submission written by hand: a circuit file for each circuit with the given scores of components."""
    api.submit_league(league, method="sweep", n=4, name=name, progress=False)
    place = league / "submissions" / name
    for circuit in League.read(league / "league.json").circuits:
        given = {Component.parse(part): score for part, score in scores(circuit.id).items()}
        shape = ves.load(league / "specimens" / circuit.id).model.config
        Circuit.scored(shape, shape.d_model, given, {}).write(place / "circuits" / f"{circuit.id}.json")
    return place


def test_components_that_a_circuit_leaves_out_score_zero(own: Path) -> None:
    """One true component, and a false one below it, was an area of 1; the true one left out lowers it."""
    roles = {case: list(entry["roles"]) for case, entry in opened(own)["circuits"].items()}
    counting = next(case for case, parts in roles.items() if len(parts) == 2)
    parts = {case: [str(c) for c in ves.load(own / "specimens" / case).model.components] for case in roles}
    false = {case: next(part for part in parts[case] if part not in roles[case]) for case in roles}
    submitted_circuits(own, "sure", lambda case: {roles[case][0]: 1.0, false[case]: 0.5})
    submitted_circuits(own, "nothing", lambda case: {})
    rows = {name: api.score_league(own, name, passphrase=PASSPHRASE) for name in ("sure", "nothing")}
    assert {one.node_auroc for one in rows["nothing"].circuits} == {0.5}
    (area,) = (one.node_auroc for one in rows["sure"].circuits if one.id == counting)
    outside = len(parts[counting]) - 2
    # Of the pairs of a true and a false component: the first true one wins all, the second ties with all but one.
    assert area == pytest.approx((outside + (outside - 1) / 2) / (2 * outside), abs=1e-6)


def test_circuits_that_failed_count_as_not_found_and_strange_names_are_one_line(own: Path) -> None:
    roles = {case: list(entry["roles"]) for case, entry in opened(own)["circuits"].items()}
    place = submitted_circuits(own, "right", lambda case: dict.fromkeys(roles[case], 1.0))
    submission = json.loads((place / "submission.json").read_text())
    counting = next(case for case, parts in roles.items() if len(parts) == 2)
    failed = {**submission, "errors": [{"case": counting, "reason": "time"}]}
    (place / "submission.json").write_text(json.dumps(failed))
    row = api.score_league(own, "right", passphrase=PASSPHRASE)
    assert (row.n, row.n_error, row.metrics["node_auroc_mean"].value) == (2, 1, 0.75)
    assert row.metrics["circuit_recall"].value == pytest.approx(1 / 3, abs=1e-6)
    place = submitted_circuits(own, "strange", lambda case: {})
    larger = Circuit.scored(EdgeGraph(8, 10), 8, {Component.parse("L7H9"): 1.0}, {})
    larger.write(place / "circuits" / "c01.json")
    with pytest.raises(BadInput, match=r"the circuit of c01: L7H9 is not in a model of"):
        api.score_league(own, "strange", passphrase=PASSPHRASE)


def test_names_that_would_overwrite_another_row_are_refused(own: Path) -> None:
    api.submit_league(own, scientist="empty", name="a/b")
    with pytest.raises(BadInput, match="holds another submission"):
        api.submit_league(own, scientist="empty", name="a_b")
    row = api.score_league(own, "a/b", passphrase=PASSPHRASE)
    place = Path(shutil.copytree(own / "submissions" / "a_b", own / "submissions" / "mine"))
    with pytest.raises(BadInput, match="has a row already"):
        api.score_league(own, place, passphrase=PASSPHRASE)
    assert LeagueRow.read(own / "rows" / "a_b.json") == row
    for name in ("..", "."):
        with pytest.raises(BadInput, match="begin it with a letter"):
            api.submit_league(own, scientist="empty", name=name)


def test_circuits_can_be_hidden_and_keys_kept_apart(sources: Path, tmp_path: Path) -> None:
    place, key = tmp_path / "league", tmp_path / "key.json"
    document = api.make_league(
        out=place, circuits=2, specimens=sources, key_out=key, circuits_given=False, passphrase=None
    )
    assert (document.key, (place / "key.json").exists()) == ("apart", False)
    card = json.loads((place / "specimens" / "c01" / "specimen.json").read_text())
    assert len(card["components"]) == card["layers"] * (card["heads"] + 1)
    api.submit_league(place, scientist="by-kind")
    with pytest.raises(BadInput, match="kept apart"):
        api.score_league(place, "by-kind", passphrase=PASSPHRASE)
    assert api.score_league(place, "by-kind", key=key).metrics["tag_accuracy"].n == 3
    (place / "rows" / "by-kind.json").unlink()
    key.write_text(key.read_text().replace("0", "1"))
    with pytest.raises(BadInput, match="is not that of"):
        api.score_league(place, "by-kind", key=key)


def test_refusals(own: Path, sources: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="inside the league"):
        api.make_league(out=tmp_path / "x", key_out=tmp_path / "x" / "key.json", specimens=sources)
    with pytest.raises(BadInput, match="give a `passphrase_file`"):
        api.make_league(out=tmp_path / "x")
    with pytest.raises(BadInput, match="holds a league already"):
        api.make_league(out=own, passphrase=PASSPHRASE)
    with pytest.raises(BadInput, match="holds 2 specimens with a key; 3 are wanted"):
        api.make_league(out=tmp_path / "x", circuits=3, passphrase=PASSPHRASE, specimens=sources)
    with pytest.raises(BadInput, match="name one of"):
        api.submit_league(own, scientist="empty", method="eap")
    with pytest.raises(BadInput, match="`method` 'banana' does not exist"):
        api.submit_league(own, method="banana")
    with pytest.raises(BadInput, match=r"holds no league\.json"):
        api.submit_league(tmp_path, scientist="empty")
    api.submit_league(own, scientist="empty")
    with pytest.raises(BadInput, match="does not open with this passphrase"):
        api.score_league(own, "empty", passphrase="wrong horse battery")
    file = own / "specimens" / "c01"
    shutil.copyfile(own / "specimens" / "c02" / "model.json", file / "model.json")
    shutil.copyfile(own / "specimens" / "c02" / "model.safetensors", file / "model.safetensors")
    with pytest.raises(BadInput, match="the weights are others"):
        api.score_league(own, "empty", passphrase=PASSPHRASE)


def test_a_seed_that_can_be_guessed_is_noted(sources: Path, tmp_path: Path) -> None:
    with pytest.warns(ves.Note, match="can be guessed"):
        api.make_league(out=tmp_path / "x", seed=7, circuits=2, key_out=tmp_path / "key.json", specimens=sources)


def test_the_rows_that_ship() -> None:
    table = api.league_table()
    assert {"builtin", "always-MAPPER", "empty", "by-kind", "eap", "eap-ig", "sweep"} <= {
        row.name for row in table.rows
    }
    for row in table.rows:
        assert (row.n, row.n_error) == (30, 0)
        assert row.metrics["false_support"].n >= 0


@pytest.fixture
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real trainer and the real gate, for a few steps of one copy: what comes out has learnt nothing."""
    brief = partial(train_group, steps=4, batch=16, gate_pairs=64, copies=[(0, 1e-3)])
    monkeypatch.setattr(making, "train_group", brief)
    monkeypatch.setattr(league_making, "ROUNDS", 1)


def test_circuits_that_the_gate_refuses_make_no_league(tmp_path: Path, brief_training: None) -> None:
    with pytest.raises(Failed, match="only 0 of 1 circuits were learnt"):
        api.make_league(out=tmp_path / "league", circuits=1, depth=1, passphrase=PASSPHRASE, progress=False)
    assert {path.name for path in (tmp_path / "league").iterdir()} == {"making"}  # to continue with; no key, no league


def test_circuits_that_the_gate_accepts_are_given_away_without_their_key(
    tmp_path: Path, brief_training: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thresholds in (gate.THRESHOLDS, gate.REPETITIVE_THRESHOLDS):
        for name in thresholds:
            monkeypatch.setitem(thresholds, name, -1.0)  # type: ignore[arg-type]
    place = tmp_path / "league"
    document = api.make_league(out=place, circuits=1, depth=1, seed=2**70, passphrase=PASSPHRASE, progress=False)
    assert [circuit.id for circuit in document.circuits] == ["c01"]
    entry = opened(place)["circuits"]["c01"]
    assert to_document(key_program_of(entry)) == entry["program"]
    assert {path.name for path in place.iterdir()} == {"league.json", "key.json", "specimens"}
    trained = ves.load(place / "specimens" / "c01").model
    assert {str(part) for part in trained.components} >= set(entry["roles"])
