"""Register a claim before its test: its hypothesis, its prediction, and the test that will decide it.

A registration is one JSON file with a digest over all of it. A claim about a circuit of a finite vocabulary may hold
its program in the short notation that language models write (`session.grammar`) or as a whole document; one about a
natural model has no program.
"""

import hashlib
import json
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vesalius.api.door import prompts_sha256
from vesalius.api.loading import loaded
from vesalius.behaviours.files import TEXT_ENDINGS
from vesalius.behaviours.registry import behaviour as named_behaviour
from vesalius.components import Component
from vesalius.documents.base import first_error
from vesalius.documents.request import installed_versions
from vesalius.errors import BadInput, choices, require_whole
from vesalius.explanations.claims import CIRCUIT_KINDS, NATURAL_KINDS, Claim, claim_from
from vesalius.explanations.claims.base import (
    ALPHA,
    MIN_CUT_EFFECT,
    MIN_EFFECT,
    MIN_MASS,
    MIN_SAMPLES,
    MIN_WORST_CELL,
    level_for,
)
from vesalius.explanations.claims.dependence import MIN_CHANGED, MIN_UNCHANGED
from vesalius.explanations.claims.interchange import MIN_AGREEMENT, MIN_CHANGED_ACCURACY, MIN_LEAD_OVER_SHUFFLED
from vesalius.explanations.claims.joint import MIN_KEPT_NATURAL
from vesalius.explanations.claims.moved import MIN_RIVAL_LEAD, MIN_TRAVELS
from vesalius.explanations.laboratory import CLAIM_SEED, CircuitLab, GrowingLab, Lab, blinded, growing_lab
from vesalius.explanations.laboratory.base import own_circuit
from vesalius.explanations.natural import PROMPTS
from vesalius.files import read_json, write_json
from vesalius.model.devices import Devices
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.states import weights_sha256
from vesalius.options import Load, require_drawable
from vesalius.progress import Progress, shown
from vesalius_bench.claims.documents import (
    BehaviourRows,
    RegisteredData,
    RegisteredHypothesis,
    RegisteredPrediction,
    RegisteredTest,
    Registration,
)
from vesalius_bench.sealing import with_seal
from vesalius_session.grammar import read_claim

#: Fields of a claim file, beside `specimen`, `claim` and `prediction`, which it must have.
OPTIONAL = ("hypothesis", "behaviour", "metric", "tokenizer", "revision", "dtype")
OPTIONAL += ("seed", "n", "tried", "circuit", "where")
REQUIRED = ("specimen", "claim", "prediction")
#: How a model is read, as a claim file and a registration name it.
READING = ("metric", "tokenizer", "revision", "dtype")
_SHIPPED = "ships with vesalius"
ClaimFile = Mapping[str, Any] | str | Path
#: The bars that rules compare interval ends with.
THRESHOLDS: dict[str, float] = {
    "alpha": ALPHA,
    "least_samples": MIN_SAMPLES,
    "least_effect": MIN_EFFECT,
    "least_kept": MIN_KEPT_NATURAL,
    "least_cut_effect": MIN_CUT_EFFECT,
    "least_attention": MIN_MASS,
    "least_agreement": MIN_AGREEMENT,
    "least_changed_accuracy": MIN_CHANGED_ACCURACY,
    "least_lead_over_shuffled": MIN_LEAD_OVER_SHUFFLED,
    "least_worst_cell": MIN_WORST_CELL,
    "least_unchanged": MIN_UNCHANGED,
    "least_changed": MIN_CHANGED,
    "least_travels": MIN_TRAVELS,
    "least_lead_over_rival": MIN_RIVAL_LEAD,
}


def register_claim(
    given: ClaimFile,
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
    place = place_of(out, fresh=True)
    seed, n, tried = asked.get("seed", 0), asked.get("n"), asked.get("tried", 1)
    require_whole(seed=seed, tried=tried, **({} if n is None else {"n": n}))
    require_drawable(1 if n is None else n, seed)
    level_for(tried)  # refused here where it is none
    prediction = _prediction(asked["prediction"])
    base = Path(given).parent if isinstance(given, str | Path) else Path()
    rows, name = _behaviour(asked.get("behaviour"), base)
    reading = {field: asked[field] for field in READING if asked.get(field) is not None}
    with shown(progress) as report, rows_on_disk(rows, name) as behaviour:
        specimen = loaded(asked["specimen"], Load(behaviour=behaviour, device=device, **reading), progress=report)
        circuit = _names(asked.get("circuit", ()))
        claim = typed_claim(specimen, asked["claim"])
        lab = held_out_laboratory(specimen, circuit, n=n, seed=seed)
    body = {
        "schema": Registration.SCHEMA,
        "document": "registered claim",
        "registered": now(),
        "hypothesis": RegisteredHypothesis(
            text=asked.get("hypothesis"), sentence=claim.text, claim=claim.model_dump(mode="json")
        ).as_data(),
        "prediction": prediction.as_data(),
        "test": registered_test(claim, lab, specimen, seed=seed, tried=tried).as_data(),
        "data": RegisteredData(
            specimen=str(asked["specimen"]),
            where=_where(asked, specimen),
            weights_sha256=weights_sha256(specimen.model),
            behaviour=name if rows is not None or name is not None else specimen.behaviour,
            rows=rows,
            prompts_sha256=digest_of_draw(lab),
            **reading,
        ).as_data(),
        "code": code_version(),
    }
    document = Registration.from_data(with_seal(as_read(body), key))
    if place is not None:
        write_json(place, document.as_data())
    return document


def typed_claim(specimen: Specimen, given: object) -> Claim:
    """The claim that the data stand for, about a component that the model has."""
    if not isinstance(given, Mapping) or not isinstance(given.get("component"), str):
        raise BadInput('claim: give an object such as {"kind": "necessary", "component": "L0_MLP"}')
    component = Component.parse(given["component"]).within(specimen.model.config)
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, FiniteVocabulary):
        return claim_from(dict(given), NATURAL_KINDS)
    nested = given.get("hypothesis")
    whole = (nested if isinstance(nested, Mapping) else given).get("program")
    if isinstance(whole, Mapping) and "vocab" in whole:
        return claim_from(dict(given), CIRCUIT_KINDS)
    return read_claim(dict(given), component, vocabulary, causal=specimen.model.config.causal)


def inputs_seed(specimen: Specimen, seed: int) -> int:
    """The seed of the held-out inputs. Base and source inputs of a circuit have seeds of their own, two apart."""
    finite = isinstance(specimen.vocabulary, FiniteVocabulary)
    return CLAIM_SEED + (2 * seed if finite else seed)


def held_out_laboratory(specimen: Specimen, circuit: Sequence[str], *, n: int | None, seed: int) -> Lab:
    """The laboratory on the held-out inputs of a seed; components of the circuit are no controls."""
    parts = [Component.parse(name).within(specimen.model.config) for name in circuit]
    drawn = inputs_seed(specimen, seed)
    if not isinstance(specimen.vocabulary, FiniteVocabulary):
        return growing_lab(specimen, n or PROMPTS, seed=drawn, circuit=sorted(set(parts)))
    circuit_and_own = sorted({*parts, *own_circuit(specimen)})
    return CircuitLab(blinded(specimen), n=n, seed=drawn, circuit=circuit_and_own)


def _whole_draw(lab: Lab) -> Lab:
    """The look at every prompt that the claim may draw: it stops earlier where it is decided."""
    return lab.at_least(lab.most) if isinstance(lab, GrowingLab) else lab


def digest_of_draw(lab: Lab) -> str:
    """The SHA-256 of every prompt that the claim may draw, and of its counterfactual."""
    draw = _whole_draw(lab)
    return prompts_sha256(draw.batch, draw.source)


def registered_test(claim: Claim, lab: Lab, specimen: Specimen, *, seed: int, tried: int) -> RegisteredTest:
    """The test of a claim as a registration states it."""
    natural = isinstance(specimen.vocabulary, TextVocabulary)
    said = " ".join((type(claim).__doc__ or "").split())
    rule = " ".join((type(claim).examine.__doc__ or "").split())
    return RegisteredTest(
        kind=claim.kind,
        replacement=getattr(claim, "replacement", None),
        experiment=f"{said} {rule}".strip(),
        split="test" if natural else "held-out inputs of inputs_seed",
        n=_whole_draw(lab).n,
        seed=seed,
        inputs_seed=inputs_seed(specimen, seed),
        tried=tried,
        level=level_for(tried),
        circuit=tuple(map(str, lab.circuit)),
        thresholds=THRESHOLDS,
    )


@contextmanager
def rows_on_disk(rows: BehaviourRows | None, name: str | None) -> Iterator[str | None]:
    """What `load` takes for the behaviour: its name, or a file with the rows that the registration holds."""
    if rows is None:
        yield name
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(rows.name).name
        file.write_text(rows.text, encoding="utf-8", newline="")
        yield str(file)


@cache
def code_version() -> dict[str, str]:
    """The versions that run, and the digest of the source files of the core and its wings."""
    root, total = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(root.glob("vesalius*/**/*.py")):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return {**installed_versions(), "source": total.hexdigest()}


def _claim_file(given: ClaimFile) -> dict[str, Any]:
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
    for name in (*READING, "hypothesis", "where"):
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


def _prediction(given: object) -> RegisteredPrediction:
    data = {"verdict": given} if isinstance(given, str) else given
    try:
        return RegisteredPrediction.model_validate(data)
    except ValidationError as error:
        raise BadInput(
            f"prediction: {first_error(error)}; give supported or refuted, with a bound {{at_least, at_most}} as value"
        ) from None


def _names(given: object) -> tuple[str, ...]:
    names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadInput("circuit: give a list of component names")
    return tuple(names)


def _behaviour(given: object, base: Path) -> tuple[BehaviourRows | None, str | None]:
    """The rows of a behaviour that a file or the claim itself holds, and its name."""
    if given is None:
        return None, None
    if isinstance(given, list | dict):
        rows = given if isinstance(given, list) else [given]
        text, name = json.dumps(rows, ensure_ascii=False, indent=1), "rows.json"
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


def _where(asked: Mapping[str, Any], specimen: Specimen) -> str:
    if asked.get("where"):
        return asked["where"]
    name = str(asked["specimen"])
    if Path(name).expanduser().exists():
        return "a local directory: ask the authors, and give its place with --specimen"
    return f"hub id {name}" if "/" in name else _SHIPPED if specimen.kind != "natural" else f"{_SHIPPED} or its extras"


def place_of(out: str | Path | None, *, fresh: bool) -> Path | None:
    """The file to write, checked before any work; one that must be `fresh` is not overwritten."""
    if out is None:
        return None
    path = Path(out)
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"`out` {path}: name a JSON file in a directory that exists")
    if fresh and path.exists():
        raise BadInput(f"`out` {path}: exists already; what was registered is not overwritten, choose another name")
    if not os.access(path.parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise BadInput(f"`out` {path}: cannot be written to; choose another place")
    return path


def now() -> str:
    """The time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def as_read(data: object) -> Any:
    """Data as a JSON file gives them back."""
    return json.loads(json.dumps(data))
