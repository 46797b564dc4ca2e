"""A league on fresh ground: circuits that nobody has seen, submissions about them, and a row for each that is scored.

    DIR/league.json           what is known without the key
    DIR/specimens/c01 ...     the models, renamed and in random order
    DIR/key.json              the key, sealed with a passphrase (or kept apart, in a file elsewhere)
    DIR/submissions/NAME      submission.json, explanations/c01.json ... or circuits/c01.json ...
    DIR/rows/NAME.json, .html what `score_league` found

The seed makes the tasks, so it is part of the key; the order of the circuits is shuffled, since tasks are generated
with roles that take turns.
"""

import hashlib
import json
import os
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from vesalius.api.benchmarks import bench_functions
from vesalius.api.discoveries import discover
from vesalius.api.explanations import explain
from vesalius.api.places import directory_for
from vesalius.circuits.blind import write_blind
from vesalius.circuits.foreign_spec import KEY_FILE as SPEC_FILE
from vesalius.circuits.foreign_spec import KEY_FOLDER, PROGRAM_FILE, key_file, key_program
from vesalius.circuits.making import make_many
from vesalius.circuits.specimens import SPECIMEN_FILE, Card
from vesalius.discovery.methods import METHODS
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.league import (
    LEAGUE_FILE,
    SUBMISSION_FILE,
    League,
    LeagueCircuit,
    LeagueError,
    LeagueRow,
    LeagueSubmission,
    LeagueTable,
)
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, Failed, choices, note, require_whole
from vesalius.explanations.scientists import BUILTIN
from vesalius.files import read_json, write_json
from vesalius.functions.interpreters import ORACLE, TABLE
from vesalius.grading.league import (
    circuit_score_metrics,
    explanation_metrics,
    score_circuit,
    score_explanation,
)
from vesalius.grading.nulls import NULL_SCIENTISTS, null_explanation
from vesalius.model.files import load_model
from vesalius.model.states import weights_sha256
from vesalius.progress import Progress, shown
from vesalius.rasp import Program, generate, roles_of
from vesalius.rasp.document import to_document
from vesalius.report.league import render_row
from vesalius.runs.scorecard import rounded
from vesalius.sealing import cryptography_needed, open_text, seal_text
from vesalius.training.trainer import StepReport

KEY_NAME, SPECIMENS, SUBMISSIONS, ROWS, MAKING = "key.json", "specimens", "submissions", "rows", "making"
#: Rows that ship with the package.
SHIPPED = "league_rows.json"
#: Categories that need no data packages.
FUNCTION_CATEGORIES = ("numeric", "strings")
#: A smaller seed can be found by trying them all.
LEAST_SECRET_SEED = 2**64
#: Tasks beyond those wanted, since some are not learnt, and how often more are tried.
SPARE, ROUNDS = 0.2, 4
#: Metrics of functions that a row takes over.
_FUNCTION_METRICS = ("success", "exact_match", "unit_test", "queries")


def make_league(
    *,
    out: str | Path,
    circuits: int = 30,
    functions: int = 0,
    depth: int = 3,
    seed: int | None = None,
    passphrase: str | None = None,
    key_out: str | Path | None = None,
    specimens: str | Path | None = None,
    circuits_given: bool = True,
    progress: Progress | bool | None = None,
) -> League:
    """Generate and train `circuits` fresh circuits, draw `functions` of each category, and lock their key away.

    The key is sealed with `passphrase`, or written as plain JSON to `key_out`, outside the league. Without a `seed` a
    secret one is drawn. `specimens` takes circuits that `vesalius train` made (on a GPU, say) instead. Without
    `circuits_given`, specimens do not say which components make up their circuit. A call that was killed continues.
    """
    require_whole(circuits=circuits, functions=functions, depth=depth, **({} if seed is None else {"seed": seed}))
    if circuits < 1 or functions < 0:
        raise BadInput(f"circuits={circuits}, functions={functions}: give at least 1 circuit and 0 or more functions")
    directory, key_file_out = _places(out, passphrase, key_out)
    work = directory_for(directory / MAKING)
    seed = _secret_seed(work, seed)
    with shown(progress) as report:
        if specimens is not None:
            sources = _trained(Path(specimens), circuits)
        else:
            sources = _train_fresh(work, circuits, depth, seed, report)
    rng = random.Random(f"{seed}/order")
    rng.shuffle(sources)
    names = {f"c{number:02d}": source for number, source in enumerate(sources, 1)}
    listed = [_listed(name, source, directory, circuits_given) for name, source in names.items()]
    drawn = {category: {"seed": rng.randrange(2**31), "count": functions} for category in FUNCTION_CATEGORIES}
    key = _key_text(names, seed, depth, drawn if functions else {})
    if passphrase is not None:
        write_json(directory / KEY_NAME, seal_text(key, passphrase))
    else:
        assert key_file_out is not None
        _write_private(key_file_out, key)
    league = League(
        made=_now(),
        circuits=tuple(listed),
        circuits_given=circuits_given,
        functions=dict.fromkeys(FUNCTION_CATEGORIES, functions) if functions else {},
        depth=None if specimens is not None else depth,
        key="apart" if passphrase is None else "sealed",
        key_sha256=_text_digest(key),
    )
    shutil.rmtree(work)
    league.write(directory / LEAGUE_FILE)
    return league


def submit_league(
    league: str | Path,
    *,
    scientist: str | None = None,
    backbone: str | None = None,
    explanations: str | Path | None = None,
    method: str | None = None,
    interpreter: str | None = None,
    name: str | None = None,
    seed: int = 0,
    n: int = 32,
    unsafe_sandbox: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> LeagueSubmission:
    """Explain, or discover, every circuit of a league, and write one submission.

    `scientist` is one of `ves.explain` ("builtin" by default, "hyve" with a `backbone`, `package.module:function`), or
    a null: "empty", "by-kind", "always-MAPPER". `explanations` is a directory of them instead (c01.json, or
    c01/explanation.json); `method` a discovery method, on `n` prompts. `interpreter` is for the functions: whoever
    scores runs it. `options` are further ones of `ves.explain`. A call that was interrupted continues.
    """
    directory, document = _read_league(league)
    chosen = [option for option in (scientist, explanations, method) if option is not None]
    if len(chosen) > 1:
        raise BadInput("name one of `scientist`, `explanations` and `method`: a submission is by one of them")
    if method is not None and method not in METHODS:
        raise BadInput(f"`method` {method!r} does not exist; choose one of {choices(METHODS)}")
    if explanations is None and method is None and scientist is None:
        scientist = "hyve" if backbone is not None else BUILTIN
    who = name or method or (Path(explanations).name if explanations is not None else str(scientist))
    if backbone is not None and name is None:
        who = f"{who}-{Path(backbone.replace(':', '_')).stem}"
    asked = LeagueSubmission(
        league=document.key_sha256,
        name=who,
        kind="circuits" if method is not None else "explanations",
        scientist=scientist,
        backbone=None if backbone is None else backbone.partition(":")[0] + ":" + Path(backbone.partition(":")[2]).name,
        method=method,
        interpreter=interpreter,
        seed=seed,
    )
    place = directory_for(directory / SUBMISSIONS / _file_name(who))
    before = _earlier(place, asked)
    if before.complete:
        raise BadInput(f"{place}: is a complete submission; give another `name`, or remove it")
    place_of_results = directory_for(place / asked.kind)
    errors: list[LeagueError] = []
    start = time.perf_counter()
    with shown(progress) as report:
        for number, circuit in enumerate(document.circuits):
            report(f"{who} on {circuit.id}", number, len(document.circuits))
            target, specimen = place_of_results / f"{circuit.id}.json", directory / SPECIMENS / circuit.id
            if target.exists():
                continue
            try:
                if method is not None:
                    discover(specimen, method, n=n, seed=seed, checks=False, progress=False).circuit.write(target)
                elif explanations is not None:
                    if (given := _given_explanation(Path(explanations), circuit.id)) is not None:
                        given.write(target)
                elif scientist in NULL_SCIENTISTS:
                    parts = Card.read(specimen / SPECIMEN_FILE).components
                    null_explanation(str(scientist), circuit.id, parts, seed=seed).write(target)
                else:
                    explain(
                        specimen,
                        scientist=scientist,
                        backbone=backbone,
                        seed=seed,
                        unsafe_sandbox=unsafe_sandbox,
                        progress=False,
                        **options,
                    ).write(target)
            except (BadInput, Failed) as error:
                errors.append(LeagueError(case=circuit.id, reason=str(error)))
    cases = tuple(one.id for one in document.circuits if (place_of_results / f"{one.id}.json").exists())
    if not cases:
        raise Failed(f"no circuit of {directory} has a result; the first: {errors[0].reason if errors else 'no file'}")
    seconds = round(before.seconds + time.perf_counter() - start, 3)
    update = {"cases": cases, "errors": tuple(errors), "complete": True, "seconds": seconds}
    submission = asked.model_copy(update=update)
    submission.write(place / SUBMISSION_FILE)
    return submission


def score_league(
    league: str | Path,
    submission: str | Path,
    *,
    passphrase: str | None = None,
    key: str | Path | None = None,
    interpreter: str | None = None,
    progress: Progress | bool | None = None,
) -> LeagueRow:
    """Open the key, score a submission, and write its row and its page.

    A circuit that the submission does not mention, or names as an error, is scored as unexplained; circuits of a
    discovery method that are errors are in no figure. The submission's interpreter is run on the functions here, since
    only the key holds them: one from elsewhere, which is a program on your machine, only if you name it as well.
    """
    directory, document = _read_league(league)
    given = Path(submission) if Path(submission).is_dir() else directory / SUBMISSIONS / _file_name(str(submission))
    asked = LeagueSubmission.read(given / SUBMISSION_FILE)
    if asked.league != document.key_sha256:
        raise BadInput(f"{given}: was submitted to another league than {directory}")
    _require_interpreter(asked.interpreter, interpreter)
    opened = _open_key(directory, document, passphrase, key)
    start = time.perf_counter()
    failed = {error.case for error in asked.errors}
    left_out = failed if asked.kind == "circuits" else set()
    with shown(progress) as report, _specimens_with_key(directory, document, opened) as keyed:
        cases = [one.id for one in document.circuits if one.id not in left_out]
        if not cases:
            raise BadInput(f"{given}: every circuit is an error; submit again")
        scored: list[Any] = []
        for number, case in enumerate(cases):
            report(f"scoring {case}", number, len(cases))
            scored.append(_scored(given, asked, case, keyed / case, failed=case in failed))
        metrics = circuit_score_metrics(scored) if asked.kind == "circuits" else explanation_metrics(scored)
        metrics = {name: metric.with_errors(len(left_out)) for name, metric in metrics.items()}
    with shown(progress) as report:
        metrics |= _function_metrics(asked, opened.get("functions", {}), report)
    fields = ("league", "name", "kind", "scientist", "backbone", "method", "interpreter", "seed", "errors")
    row = LeagueRow(
        **{name: getattr(asked, name) for name in fields},
        n=len(cases),
        n_error=len(failed),
        metrics={name: Metric.model_validate(rounded(metric.as_data())) for name, metric in metrics.items()},
        circuits=tuple(one.row() for one in scored),
        scored=_now(),
        seconds=round(asked.seconds + time.perf_counter() - start, 3),
    )
    rows = directory_for(directory / ROWS)
    row.write(rows / f"{_file_name(row.name)}.json")
    render_row(row, document, rows / f"{_file_name(row.name)}.html")
    return row


def league_table(*places: str | Path) -> LeagueTable:
    """Rows beside each other: those of leagues, or of files; without any, those that ship with the package."""
    if not places:
        data = json.loads(files("vesalius.api").joinpath(SHIPPED).read_text(encoding="utf-8"))
        return LeagueTable.from_data(data, source=SHIPPED)
    found: list[Path] = []
    for place in map(Path, places):
        found += sorted((place / ROWS).glob("*.json")) if place.is_dir() else [place]
    if not found:
        raise BadInput(f"{choices(places)}: no row yet; score a submission with `vesalius league score`")
    return LeagueTable(rows=tuple(LeagueRow.read(path) for path in found))


def _places(out: str | Path, passphrase: str | None, key_out: str | Path | None) -> tuple[Path, Path | None]:
    """Where the league and its key go; refused before any work where one of them cannot."""
    if (passphrase is None) == (key_out is None):
        raise BadInput("the key: give a `passphrase_file` that seals it, or `key_out`, a file outside the league")
    if passphrase is not None:
        cryptography_needed()
        if len(passphrase) < 8:
            raise BadInput(f"the passphrase has {len(passphrase)} characters; give at least 8")
    directory = directory_for(out)
    if (directory / LEAGUE_FILE).exists():
        raise BadInput(f"`out` {directory}: holds a league already; choose another directory")
    if key_out is None:
        return directory, None
    place = Path(key_out).resolve()
    if place.is_relative_to(directory.resolve()):
        raise BadInput(f"`key_out` {key_out}: is inside the league, which is given away; choose a place outside")
    if place.exists() or not place.parent.is_dir():
        raise BadInput(f"`key_out` {key_out}: name a new file in a directory that exists")
    return directory, place


def _secret_seed(work: Path, seed: int | None) -> int:
    """The seed of the tasks; kept while the league is being made, so that a killed call continues with it."""
    file = work / "seed"
    if seed is None:
        seed = int(file.read_text()) if file.is_file() else LEAST_SECRET_SEED + secrets.randbits(96)
    elif seed < LEAST_SECRET_SEED:
        note(
            f"seed {seed} can be guessed, and gives the tasks away; leave it out, or give one above {LEAST_SECRET_SEED}"
        )
    _write_private(file, str(seed), fresh=False)
    return seed


def _train_fresh(work: Path, circuits: int, depth: int, seed: int, report: Progress) -> list[Path]:
    """Directories of accepted specimens: more tasks are generated until there are enough."""
    trained, wanted = directory_for(work / "trained"), circuits + int(SPARE * circuits) + 1
    training_seed = int(hashlib.sha256(f"{seed}/training".encode()).hexdigest()[:7], 16)
    accepted: list[Path] = []
    for _ in range(ROUNDS):
        paths = [task.write(work / "specs") for task in generate(seed, wanted, depth)]
        missing = [path for path in paths if not (trained / f"{path.stem}.tried").exists()]
        for event in make_many(missing, out=trained, device="cpu", seed=training_seed):
            if isinstance(event, StepReport):
                report(f"training {len(missing)} circuits", event.step, event.steps)
        for path in missing:
            (trained / f"{path.stem}.tried").touch()
        accepted = [trained / path.stem for path in paths if (trained / path.stem / SPECIMEN_FILE).exists()]
        if len(accepted) >= circuits:
            return accepted[:circuits]
        wanted += circuits - len(accepted) + 1
    raise Failed(f"only {len(accepted)} of {circuits} circuits were learnt; allow less `depth`, or train on a GPU")


def _trained(folder: Path, circuits: int) -> list[Path]:
    places = sorted(path.parent for path in folder.glob(f"*/{SPECIMEN_FILE}"))
    for place in places:
        key_file(place)
    if len(places) < circuits:
        raise BadInput(f"`specimens` {folder}: holds {len(places)} specimens with a key; {circuits} are wanted")
    return places[:circuits]


def _listed(name: str, source: Path, directory: Path, circuits_given: bool) -> LeagueCircuit:
    model = write_blind(source, directory / SPECIMENS / name, name=name, circuit_given=circuits_given)
    shape = model.config
    return LeagueCircuit(
        id=name,
        weights_sha256=weights_sha256(model),
        layers=shape.n_layers,
        heads=shape.n_heads,
        d_model=shape.d_model,
    )


def _key_text(names: Mapping[str, Path], seed: int, depth: int, functions: Mapping[str, Any]) -> str:
    def entry(source: Path) -> dict[str, Any]:
        program: Program = key_program(source)
        roles = {str(component): str(role) for component, role in roles_of(program).items()}
        spec = key_file(source).read_text(encoding="utf-8")
        return {"task": source.name, "program": to_document(program), "roles": roles, "spec": spec}

    key = {
        "schema": 1,
        "salt": secrets.token_hex(16),
        "seed": str(seed),
        "depth": depth,
        "circuits": {name: entry(source) for name, source in names.items()},
        "functions": functions,
    }
    return json.dumps(key, ensure_ascii=False)


def _open_key(directory: Path, league: League, passphrase: str | None, key: str | Path | None) -> dict[str, Any]:
    if (passphrase is None) == (key is None):
        raise BadInput("the key: give a `passphrase_file`, or `key`, the file that it was written to")
    if passphrase is not None:
        if league.key != "sealed":
            raise BadInput(f"{directory}: its key is kept apart; give its file as `key`")
        text = open_text(read_json(directory / KEY_NAME), passphrase, source=directory / KEY_NAME)
    else:
        try:
            text = Path(str(key)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"`key` {key}: cannot be read ({error})") from None
    if _text_digest(text) != league.key_sha256:
        raise BadInput(f"the key is not that of {directory}; league.json names another digest")
    return json.loads(text)


@contextmanager
def _specimens_with_key(directory: Path, league: League, key: Mapping[str, Any]) -> Iterator[Path]:
    """A folder, for the time of scoring, where every specimen has its program beside it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for circuit in league.circuits:
            source = directory / SPECIMENS / circuit.id
            if weights_sha256(load_model(source)) != circuit.weights_sha256:
                raise BadInput(f"{source}: the weights are others than those of league.json; take the league again")
            shutil.copytree(source, root / circuit.id)
            answers = root / circuit.id / KEY_FOLDER
            answers.mkdir()
            write_json(answers / PROGRAM_FILE, key["circuits"][circuit.id]["program"])
            (answers / SPEC_FILE).write_text(key["circuits"][circuit.id]["spec"], encoding="utf-8")
        yield root


def _require_interpreter(submitted: str | None, named: str | None) -> None:
    """Refuse an interpreter that knows the answers, and to run somebody's program unless the scorer names it."""
    if submitted == ORACLE:
        raise BadInput("the submission's interpreter is the oracle, which is given the answers; it cannot be scored")
    if submitted not in (None, BUILTIN, TABLE) and submitted != named:
        raise BadInput(
            f"the submission's interpreter is {submitted!r}, a program that would run here; look at it, then name it: "
            "--interpreter"
        )


def _scored(given: Path, asked: LeagueSubmission, case: str, keyed: Path, *, failed: bool) -> Any:
    file = given / asked.kind / f"{case}.json"
    if asked.kind == "circuits":
        if not file.exists():
            raise BadInput(f"{file}: is missing; submit again")
        return score_circuit(Circuit.read(file), keyed, case=case)
    silent = null_explanation("empty", case, (), seed=asked.seed)
    return score_explanation(Explanation.read(file) if file.exists() and not failed else silent, keyed, case=case)


def _function_metrics(asked: LeagueSubmission, functions: Mapping[str, Any], report: Progress) -> dict[str, Metric]:
    if asked.interpreter is None:
        return {}
    if not functions:
        note("the league has no functions; the interpreter of the submission is not run")
    made: dict[str, Metric] = {}
    for category, drawn in functions.items():
        report(f"{asked.interpreter} on {drawn['count']} functions of {category}", 0, 1)
        with tempfile.TemporaryDirectory() as folder:
            options = {"seed": drawn["seed"], "count": drawn["count"], "out": folder, "jobs": 1, "progress": False}
            card = bench_functions(category=category, interpreter=asked.interpreter, **options)
        made |= {f"functions.{category}.{m}": card.metrics[m] for m in _FUNCTION_METRICS if m in card.metrics}
    return made


def _read_league(league: str | Path) -> tuple[Path, League]:
    directory = Path(league)
    if not (directory / LEAGUE_FILE).is_file():
        raise BadInput(f"{league}: holds no {LEAGUE_FILE}; make a league with `vesalius league make --out DIR`")
    return directory, League.read(directory / LEAGUE_FILE)


def _earlier(place: Path, asked: LeagueSubmission) -> LeagueSubmission:
    """What was submitted before under this name, by the same scientist with the same seed; else refused."""
    file = place / SUBMISSION_FILE
    if not file.is_file():
        asked.write(file)
        return asked
    before = LeagueSubmission.read(file)
    fields = ("league", "kind", "scientist", "backbone", "method", "interpreter", "seed")
    if any(getattr(before, name) != getattr(asked, name) for name in fields):
        raise BadInput(f"{place}: holds another submission; give another `name`")
    return before


def _given_explanation(folder: Path, case: str) -> Explanation | None:
    if not folder.is_dir():
        raise BadInput(f"`explanations` {folder}: no such directory")
    for file in (folder / f"{case}.json", folder / case / EXPLANATION_FILE):
        if file.is_file():
            return Explanation.read(file)
    return None


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in name)[:80]


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write_private(path: Path, text: str, *, fresh: bool = True) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if fresh else os.O_TRUNC)
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_passphrase(path: str | Path) -> str:
    """The first line of a passphrase file."""
    try:
        lines: Sequence[str] = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"`passphrase_file` {path}: cannot be read ({error})") from None
    if not lines or not lines[0].strip():
        raise BadInput(f"`passphrase_file` {path}: is empty; write the passphrase on its first line")
    return lines[0].strip()
