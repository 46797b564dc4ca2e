"""Registered claims: write down a hypothesis, its prediction and its test before the test is run; run it; check both.

A registration is one JSON file with a digest over all of it. `verify_claim` holds the file, the model and the prompts
against it before anything is run, so that a claim that was changed after it was registered is TAMPERED, not PASS.
"""

import hashlib
import json
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vesalius.api.loading import loaded
from vesalius.api.places import prompts_sha256
from vesalius.behaviours.files import TEXT_ENDINGS
from vesalius.behaviours.registry import behaviour as named_behaviour
from vesalius.documents.base import first_error
from vesalius.documents.request import installed_versions
from vesalius.errors import BadInput, Failed, choices, require_whole
from vesalius.explanations.claims import Claim
from vesalius.explanations.claims.base import level_for
from vesalius.explanations.laboratory import Lab
from vesalius.files import parse_json, read_json, write_json
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import weights_sha256
from vesalius.options import Load, require_drawable
from vesalius.progress import Progress, shown
from vesalius_bench.claims.documents import (
    BehaviourRows,
    ClaimVerdict,
    IntegrityCheck,
    RegisteredData,
    RegisteredHypothesis,
    RegisteredPrediction,
    RegisteredTest,
    Registration,
)
from vesalius_bench.claims.registering import (
    THRESHOLDS,
    claim_as_data,
    decide_registered,
    experiment_of,
    held_out_laboratory,
    inputs_seed,
    typed_claim,
)
from vesalius_bench.sealing import seal_faults, with_seal, write_signing_key

#: Fields of a claim file, beside `specimen`, `claim` and `prediction`, which it must have.
OPTIONAL = ("hypothesis", "behaviour", "metric", "tokenizer", "revision", "dtype")
OPTIONAL += ("seed", "n", "tried", "circuit", "where")
REQUIRED = ("specimen", "claim", "prediction")
#: How a model is read, as a claim file and a registration name it.
_READING = ("metric", "tokenizer", "revision", "dtype")
_SHIPPED = "ships with vesalius"
Given = Mapping[str, Any] | str | Path


def register_claim(
    given: Given,
    *,
    key: str | Path | None = None,
    out: str | Path | None = None,
    device: Devices = "auto",
    progress: Progress | bool | None = None,
) -> Registration:
    """Write down a claim before its test. The model is loaded and the prompts are drawn; the test is not run.

    `given` is a JSON or TOML file, or its data: `specimen`, `claim` (typed), `prediction` ("supported", "refuted", or
    with a bound: `{"verdict": "supported", "value": {"measure": "effect", "at_least": 0.2}}`) and, optionally,
    `hypothesis` in your words, `behaviour` (name, file or rows), `seed`, `n`, `tried`, `circuit`, `where`. `key` is a
    file of `signing_key`; `out` the JSON file to write.
    """
    asked = _claim_file(given)
    place = _file(out, fresh=True)
    seed, n, tried = asked.get("seed", 0), asked.get("n"), asked.get("tried", 1)
    require_whole(seed=seed, tried=tried, **({} if n is None else {"n": n}))
    require_drawable(1 if n is None else n, seed)
    level = level_for(tried)
    prediction = _prediction(asked["prediction"])
    base = Path(given).parent if isinstance(given, str | Path) else Path()
    rows, name = _behaviour(asked.get("behaviour"), base)
    reading = {field: asked[field] for field in _READING if asked.get(field) is not None}
    with shown(progress) as report, _rows_on_disk(rows, name) as behaviour:
        specimen = loaded(asked["specimen"], Load(behaviour=behaviour, device=device, **reading), progress=report)
        circuit = _names(asked.get("circuit", ()))
        claim = typed_claim(specimen, asked["claim"])
        lab = held_out_laboratory(specimen, circuit, n=n, seed=seed)
    body = {
        "schema": Registration.SCHEMA,
        "document": "registered claim",
        "registered": _now(),
        "hypothesis": _hypothesis(asked.get("hypothesis"), claim).as_data(),
        "prediction": prediction.as_data(),
        "test": _test(claim, lab, specimen, seed=seed, tried=tried, level=level).as_data(),
        "data": RegisteredData(
            specimen=str(asked["specimen"]),
            where=_where(asked, specimen),
            weights_sha256=weights_sha256(specimen.model),
            behaviour=name if rows is not None or name is not None else specimen.behaviour,
            rows=rows,
            prompts_sha256=prompts_sha256(lab.batch, lab.source),
            **reading,
        ).as_data(),
        "code": code_version(),
    }
    document = Registration.from_data(with_seal(_plain(body), key))
    if place is not None:
        write_json(place, document.as_data())
    return document


def verify_claim(
    claim: Registration | str | Path,
    *,
    specimen: Specimen | str | Path | None = None,
    published: str | None = None,
    signer: str | None = None,
    key: str | Path | None = None,
    out: str | Path | None = None,
    device: Devices = "auto",
    progress: Progress | bool | None = None,
) -> ClaimVerdict:
    """Check a registered claim, run its test, and give the verdict: PASS, FAIL or TAMPERED.

    `published` is the digest that was published when the claim was registered, `signer` the public key of its author;
    `specimen` replaces the place of the model; `key` signs the verdict. TAMPERED is found before anything is run.
    """
    start, place = time.perf_counter(), _file(out, fresh=False)
    data = _document_data(claim)
    checks = _seal_checks(data, published=published, signer=signer)
    if _failed(checks):
        return _tampered(data, checks, start)
    registration = Registration.from_data(data, source="the registered claim")
    checks += [_code_check(registration)]
    with shown(progress) as report, _rows_on_disk(registration.data.rows, registration.data.behaviour) as behaviour:
        subject = _subject(registration, specimen, behaviour, device, report)
        checks.append(_check("model weights", weights_sha256(subject.model) == registration.data.weights_sha256))
        if _failed(checks):
            return _tampered(data, checks, start)
        test = registration.test
        lab = held_out_laboratory(subject, test.circuit, n=test.n, seed=test.seed)
        checks.append(_prompts_check(registration, lab, checks))
        if _failed(checks):
            return _tampered(data, checks, start)
        typed = typed_claim(subject, registration.as_data()["hypothesis"]["claim"])
        checks.append(_test_check(registration, typed, lab, subject, checks))
        if _failed(checks):
            return _tampered(data, checks, start)
        report("testing the claim", 0, 1)
        record = decide_registered(typed, lab, tried=test.tried)
        report("testing the claim", 1, 1)
    came_true, reason = outcome(registration.prediction, record)
    document = ClaimVerdict(
        result="PASS" if came_true else "FAIL",
        reason=reason,
        registration=registration.seal.digest,
        checks=tuple(checks),
        record=record,
        verified=_now(),
        code=code_version(),
        seconds=round(time.perf_counter() - start, 3),
    )
    document = ClaimVerdict.from_data(with_seal(_plain(document.as_data()), key))
    if place is not None:
        write_json(place, document.as_data())
    return document


def check_verdict(
    claim: Registration | str | Path,
    verdict: ClaimVerdict | str | Path,
    *,
    published: str | None = None,
    signer: str | None = None,
) -> ClaimVerdict:
    """A verdict that was written earlier, held against its registration; TAMPERED where a check fails. Nothing is run.

    `published` is the digest of the registration, `signer` the public key of who verified it.
    """
    start = time.perf_counter()
    data, given = _document_data(claim), _document_data(verdict)
    checks = _seal_checks(data, published=published, signer=None)
    checks += _seal_checks(given, published=None, signer=signer, of="verdict: ")
    if _failed(checks):
        return _tampered(data, checks, start)
    registration, document = Registration.from_data(data), ClaimVerdict.from_data(given, source="the verdict")
    bound = document.registration == registration.seal.digest
    checks.append(_check("binding", bound, "the verdict is about another registration"))
    if document.record is not None and bound:
        stated = (registration.test.kind, registration.hypothesis.sentence)
        same = (document.record.kind, document.record.text) == stated and bool(document.record.evidence)
        checks.append(_check("record", same, "the verdict has no evidence, or it is about another claim"))
        came_true, _ = outcome(registration.prediction, document.record)
        same = document.result == ("PASS" if came_true else "FAIL")
        checks.append(_check("result", same, "the result is not what prediction and evidence give"))
    else:
        checks.append(_check("record", document.record is not None, "the verdict has no evidence"))
    return _tampered(data, checks, start) if _failed(checks) else document


def show_claim(
    file: str | Path, *, published: str | None = None, signer: str | None = None
) -> Registration | ClaimVerdict:
    """A registered claim or a verdict as its file has it, after its seal is checked; a `ClaimVerdict` with the result
    TAMPERED where a check fails. Nothing is loaded and nothing is run.
    """
    start, data = time.perf_counter(), _document_data(file)
    checks = _seal_checks(data, published=published, signer=signer)
    if _failed(checks):
        return _tampered(data, checks, start)
    kind = ClaimVerdict if data.get("document") == "verdict" else Registration
    return kind.from_data(data, source=str(file))


def signing_key(out: str | Path) -> str:
    """Write a new Ed25519 key that signs claims and verdicts, and return its public half, which is to be published."""
    return write_signing_key(out)


def outcome(prediction: RegisteredPrediction, record: Any) -> tuple[bool, str]:
    """Whether the prediction came true, and a sentence that says so."""
    said = f"predicted {prediction.verdict}, found {record.verdict}"
    if record.verdict != prediction.verdict or prediction.value is None:
        return record.verdict == prediction.verdict, said
    bound = prediction.value
    named = [one for one in record.evidence if bound.measure in (None, one.measure)]
    value = named[0].value if named else None
    if value is None:
        return False, f"{said}; there is no value of {bound.measure or 'the evidence'} to compare"
    low, high = bound.at_least, bound.at_most
    inside = (low is None or value >= low) and (high is None or value <= high)
    words = " and ".join([f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None))
    return inside, f"{said}; {named[0].measure} is {value}, predicted {words}"


@cache
def code_version() -> dict[str, str]:
    """The versions that run, and the digest of the source files of the core and its wings."""
    root, total = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.glob("vesalius*/**/*.py")):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return {**installed_versions(), "source": total.hexdigest()}


def _claim_file(given: Given) -> dict[str, Any]:
    if isinstance(given, Mapping):
        data, source = dict(given), "claim"
    else:
        path, source = Path(given), str(given)
        data = _toml(path) if path.suffix.lower() == ".toml" else read_json(path)
    if missing := [name for name in REQUIRED if data.get(name) in (None, "")]:
        raise BadInput(f"{source}: has no {missing[0]!r}; a claim file needs {', '.join(REQUIRED)}")
    if strange := sorted(set(data) - {*REQUIRED, *OPTIONAL}):
        raise BadInput(
            f"{source}: field {strange[0]!r:.60} is not known; fields are {choices([*REQUIRED, *OPTIONAL], 20)}"
        )
    if not isinstance(data["specimen"], str | int) or isinstance(data["specimen"], bool):
        raise BadInput(f"{source}: specimen must be a name or a path, as in ves.load")
    for name in (*_READING, "hypothesis", "where"):
        if not isinstance(data.get(name), str | None):
            raise BadInput(f"{source}: {name} must be a text")
    return data


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not readable as TOML ({error})") from None


def _prediction(given: Any) -> RegisteredPrediction:
    data = {"verdict": given} if isinstance(given, str) else given
    try:
        return RegisteredPrediction.model_validate(data)
    except ValidationError as error:
        raise BadInput(
            f"prediction: {first_error(error)}; give supported or refuted, with a bound {{at_least, at_most}} as value"
        ) from None


def _names(given: Any) -> tuple[str, ...]:
    names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadInput("circuit: give a list of component names")
    return tuple(names)


def _behaviour(given: Any, base: Path) -> tuple[BehaviourRows | None, str | None]:
    """The rows of a behaviour that a file or the claim itself holds, and its name."""
    if given is None:
        return None, None
    if isinstance(given, list | dict):
        text, name = _json_rows(given), "rows.json"
    else:
        if not isinstance(given, str):
            raise BadInput("behaviour: give a name, a file of rows, or the rows")
        path = base / Path(given).expanduser()
        if path.suffix.lower() not in TEXT_ENDINGS and not path.exists():
            named_behaviour(given)
            return None, given
        if path.suffix.lower() not in TEXT_ENDINGS:
            raise BadInput(
                f"behaviour {given}: a registered claim holds its rows; give them as {', '.join(TEXT_ENDINGS)}"
            )
        try:
            text, name = path.read_text(encoding="utf-8"), path.name
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"behaviour {path}: cannot be read ({error})") from None
    return BehaviourRows(name=name, text=text, sha256=hashlib.sha256(text.encode()).hexdigest()), name


def _json_rows(given: Any) -> str:
    return json.dumps(given if isinstance(given, list) else [given], ensure_ascii=False, indent=1)


@contextmanager
def _rows_on_disk(rows: BehaviourRows | None, name: str | None) -> Iterator[str | None]:
    """What `load` takes for the behaviour: its name, or a file with the rows that the registration holds."""
    if rows is None:
        yield name
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(rows.name).name
        file.write_text(rows.text, encoding="utf-8", newline="")
        yield str(file)


def _hypothesis(text: str | None, claim: Claim) -> RegisteredHypothesis:
    return RegisteredHypothesis(text=text, sentence=claim.text, claim=claim_as_data(claim))


def _test(claim: Claim, lab: Lab, specimen: Specimen, *, seed: int, tried: int, level: float) -> RegisteredTest:
    natural = isinstance(specimen.vocabulary, TextVocabulary)
    return RegisteredTest(
        kind=claim.kind,
        replacement=getattr(claim, "replacement", None),
        experiment=experiment_of(claim),
        split="test" if natural else "held-out inputs of inputs_seed",
        n=lab.n,
        seed=seed,
        inputs_seed=inputs_seed(specimen, seed),
        tried=tried,
        level=level,
        circuit=tuple(map(str, lab.circuit)),
        thresholds=THRESHOLDS,
    )


def _where(asked: Mapping[str, Any], specimen: Specimen) -> str:
    if asked.get("where"):
        return asked["where"]
    name = str(asked["specimen"])
    if Path(name).expanduser().exists():
        return "a local directory: ask the authors, and give its place with --specimen"
    return f"hub id {name}" if "/" in name else _SHIPPED if specimen.kind != "natural" else f"{_SHIPPED} or its extras"


def _subject(
    registration: Registration, given: Specimen | str | Path | None, behaviour: str | None, device: Devices, report: Any
) -> Specimen:
    data = registration.data
    reading = {field: getattr(data, field) for field in _READING if getattr(data, field) is not None}
    if isinstance(given, Specimen):
        return loaded(given, Load(behaviour=behaviour, metric=data.metric))  # type: ignore[arg-type]
    try:
        return loaded(given or data.specimen, Load(behaviour=behaviour, device=device, **reading), progress=report)
    except BadInput as error:
        if given is not None:
            raise
        raise BadInput(f"{error}; the registration says where the model is: {data.where}; give `specimen`") from None


def _document_data(given: Registration | ClaimVerdict | str | Path) -> dict[str, Any]:
    """The raw data of a document: what is checked is the file as it is, not what can be read of it."""
    if isinstance(given, Registration | ClaimVerdict):
        return _plain(given.as_data())
    path = Path(given)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    data = parse_json(content, source=path, unique=True)
    known = {*Registration.model_fields, *ClaimVerdict.model_fields}
    if not isinstance(data, dict) or len(known & set(data)) < 4:
        raise BadInput(f"{path}: is no registered claim and no verdict; `vesalius claims register` writes one")
    return data


def _seal_checks(
    data: Mapping[str, Any], *, published: str | None, signer: str | None, of: str = ""
) -> list[IntegrityCheck]:
    faults = seal_faults(data, published=published, signer=signer)
    return [_check(f"{of}{name}", fault is None, fault or "") for name, fault in faults.items()]


def _check(name: str, passed: bool, detail: str = "") -> IntegrityCheck:
    wrong = {"model weights": "the model is another one than was registered"}.get(name, detail)
    return IntegrityCheck(name=name, passed=passed, detail="as registered" if passed else wrong)


def _code_check(registration: Registration) -> IntegrityCheck:
    then, now = registration.code, code_version()
    others = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    if not others:
        return _check("code", True)
    named = ", ".join(f"{name} {then.get(name, '?')[:12]} (here {now.get(name, '?')[:12]})" for name in others)
    return IntegrityCheck(name="code", passed=None, detail=f"registered with other code: {named}")


def _prompts_check(registration: Registration, lab: Lab, checks: list[IntegrityCheck]) -> IntegrityCheck:
    same = prompts_sha256(lab.batch, lab.source) == registration.data.prompts_sha256
    if not same:
        _blame_other_code(registration, checks, "draws other prompts than the one that registered the claim")
    return _check("prompts", same, "the prompts that are drawn are others than were registered")


def _test_check(
    registration: Registration, claim: Claim, lab: Lab, specimen: Specimen, checks: list[IntegrityCheck]
) -> IntegrityCheck:
    """Whether the test that would be run, and the sentence it decides, are those that were registered."""
    stated = registration.test
    level = level_for(stated.tried)
    test = _test(claim, lab, specimen, seed=stated.seed, tried=stated.tried, level=level).as_data()
    registered = stated.as_data()
    others = [name for name, value in _plain(test).items() if registered.get(name) != value]
    others += ["sentence"] if registration.hypothesis.sentence != claim.text else []
    if others:
        _blame_other_code(registration, checks, f"tests the claim otherwise ({', '.join(others)})")
    return _check("test", not others, f"another test would be run than was registered: {', '.join(others)}")


def _blame_other_code(registration: Registration, checks: list[IntegrityCheck], what: str) -> None:
    """Fail where the code is another version than registered: then a difference is no tampering."""
    if any(check.name == "code" and check.passed is None for check in checks):
        raise Failed(f"this version {what}; use vesalius {registration.code.get('vesalius', '?')}")


def _failed(checks: list[IntegrityCheck]) -> list[IntegrityCheck]:
    return [check for check in checks if check.passed is False]


def _tampered(data: Mapping[str, Any], checks: list[IntegrityCheck], start: float) -> ClaimVerdict:
    seal = data.get("seal")
    stated = seal.get("digest") if isinstance(seal, Mapping) else None
    return ClaimVerdict(
        result="TAMPERED",
        reason="; ".join(f"{check.name}: {check.detail}" for check in _failed(checks)),
        registration=stated if isinstance(stated, str) else None,
        checks=tuple(checks),
        verified=_now(),
        code=code_version(),
        seconds=round(time.perf_counter() - start, 3),
    )


def _file(out: str | Path | None, *, fresh: bool) -> Path | None:
    if out is None:
        return None
    path = Path(out)
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"`out` {path}: name a JSON file in a directory that exists")
    if fresh and path.exists():
        raise BadInput(f"`out` {path}: exists already; what was registered is not overwritten, choose another name")
    return path


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(data: Any) -> Any:
    """Data as a JSON file gives them back."""
    return json.loads(json.dumps(data))
