"""Verify a registered claim: check that nothing of it changed, run its test, say whether the prediction came true.

The file, the model and the prompts are held against the registration before anything is run, so that a claim that was
changed after it was registered is ALTERED, not PASS. Whatever is verified, the result says what is proven, and by what:
a test that was rerun here, a signature by a key that the user named, a digest that was published, or nothing.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.api.loading import loaded
from vesalius.errors import BadInput, Failed, result_kept
from vesalius.explanations.claims import Claim, check
from vesalius.explanations.laboratory import Lab
from vesalius.files import content_of, parse_json, write_json
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen
from vesalius.model.states import weights_sha256
from vesalius.options import Load
from vesalius.progress import Progress, shown
from vesalius_bench.claims.documents import (
    ClaimResult,
    ClaimVerdict,
    IntegrityCheck,
    Proven,
    RegisteredPrediction,
    Registration,
)
from vesalius_bench.claims.register import (
    READING,
    as_read,
    code_version,
    digest_of_draw,
    held_out_laboratory,
    now,
    place_of,
    registered_test,
    rows_on_disk,
    typed_claim,
)
from vesalius_bench.sealing import is_stripped, seal_faults, with_seal


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
    """Check a registered claim, run its test, and give the verdict: PASS or FAIL, or what is wrong with the file.

    `published` is the digest that was published when the claim was registered, `signer` the public key of its author;
    `specimen` replaces the place of the model; `key` signs the verdict. What is wrong with
    the file is found before anything is run.
    """
    start, place = time.perf_counter(), place_of(out, fresh=False)
    data = _document_data(claim)
    checks = _seal_checks(data, published=published, signer=signer)
    if _failed(checks):
        return _refused(data, checks, start, signer=signer)
    registration = Registration.from_data(data, source="the registered claim")
    checks += [_code_check(registration)]
    with shown(progress) as report, rows_on_disk(registration.data.rows, registration.data.behaviour) as behaviour:
        subject = _subject(registration, specimen, behaviour, device, report)
        checks.append(_check("model weights", weights_sha256(subject.model) == registration.data.weights_sha256))
        if _failed(checks):
            return _refused(data, checks, start, signer=signer)
        test = registration.test
        lab = held_out_laboratory(subject, test.circuit, n=test.n, seed=test.seed)
        checks.append(_prompts_check(registration, lab, checks))
        if _failed(checks):
            return _refused(data, checks, start, signer=signer)
        typed = typed_claim(subject, registration.as_data()["hypothesis"]["claim"])
        checks.append(_test_check(registration, typed, lab, subject, checks))
        if _failed(checks):
            return _refused(data, checks, start, signer=signer)
        report("testing the claim", 0, 1)
        record = check(typed, lab, tried=test.tried)
        report("testing the claim", 1, 1)
    came_true, reason = outcome(registration.prediction, record)
    document = ClaimVerdict(
        result="PASS" if came_true else "FAIL",
        reason=reason,
        registration=registration.seal.digest,
        checks=tuple(checks),
        record=record,
        verified=now(),
        code=code_version(),
        seconds=round(time.perf_counter() - start, 3),
        proven=(Proven(by="rerun", detail="the test was run here"), claim_proven(registration, published, signer)),
    )
    document = ClaimVerdict.from_data(with_seal(as_read(document.as_data()), key))
    if place is not None:
        with result_kept(document):
            write_json(place, document.as_data())
    return document


def check_verdict(
    claim: Registration | str | Path,
    verdict: ClaimVerdict | str | Path,
    *,
    published: str | None = None,
    signer: str | None = None,
) -> ClaimVerdict:
    """A verdict that was written earlier, held against its registration. Nothing is run, so it is PASS or FAIL only
    where the key `signer` signed it; otherwise UNSIGNED or UNTRUSTED, and ALTERED or STRIPPED where a check fails.

    `published` is the digest of the registration, `signer` the public key of who verified it.
    """
    start = time.perf_counter()
    data, given = _document_data(claim), _document_data(verdict)
    checks = _seal_checks(data, published=published, signer=None)
    if _failed(checks):
        return _refused(data, checks, start)
    checks += _seal_checks(given, published=None, signer=signer, of="verdict: ")
    if _failed(checks):
        return _refused(given, checks, start, signer=signer)
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
    if _failed(checks):
        return _refused(given, checks, start)
    return _believed(document, signer, claim_proven(registration, published, None))


def show_claim(
    file: str | Path, *, published: str | None = None, signer: str | None = None
) -> Registration | ClaimVerdict:
    """A registered claim or a verdict as its file has it, after its seal is checked; a `ClaimVerdict` that says ALTERED
    or STRIPPED where a check fails, and UNSIGNED or UNTRUSTED for a verdict that `signer` did not sign. Nothing is
    loaded and nothing is run.
    """
    start, data = time.perf_counter(), _document_data(file)
    checks = _seal_checks(data, published=published, signer=signer)
    if _failed(checks):
        return _refused(data, checks, start, signer=signer)
    if data.get("document") != "verdict":
        return Registration.from_data(data, source=str(file))
    return _believed(ClaimVerdict.from_data(data, source=str(file)), signer)


def _believed(document: ClaimVerdict, signer: str | None, *claim: Proven) -> ClaimVerdict:
    """A verdict whose seal holds, with the result that a reader may take from it."""
    key = None if document.seal is None else document.seal.signer
    if key is not None and signer is not None:
        proven = Proven(by="signature", detail=f"the verdict was signed by {key}, the key that you named")
        return document.model_copy(update={"proven": (proven, *claim)})
    said = f"the file says {document.result}"
    if key is None:
        result: ClaimResult = "UNSIGNED"
        reason = f"{said}, and nobody signed it: anybody could have written that; run the test yourself"
        proven = Proven(by="nothing", detail="nothing of the test, which was not run here")
    else:
        result = "UNTRUSTED"
        reason = f"{said}, signed by {key}; name that key with --signer if you know whose it is, or run the test"
        proven = Proven(by="nothing", detail=f"only that the key {key}, whoever has it, signed the verdict")
    return document.model_copy(update={"result": result, "reason": reason, "proven": (proven, *claim)})


def claim_proven(registration: Registration, published: str | None, signer: str | None) -> Proven:
    """What is known of the registration: that it is as its author wrote it, or only as the file says."""
    seal = registration.seal
    ways = ["its digest is the published one"] if published is not None else []
    if signer is not None:
        ways.append(f"it was signed by {seal.signer}, the key that you named")
    if ways:
        by = "signature" if signer is not None else "digest"
        return Proven(by=by, detail=f"the claim is as it was registered: {' and '.join(ways)}")
    known = f"the key {seal.signer} signed it; " if seal.signer else ""
    return Proven(
        by="nothing",
        detail=f"not that the claim is as it was registered: {known}give --digest, or --signer, to prove that",
    )


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


def _subject(
    registration: Registration, given: Specimen | str | Path | None, behaviour: str | None, device: Devices, report: Any
) -> Specimen:
    data = registration.data
    reading = {field: getattr(data, field) for field in READING if getattr(data, field) is not None}
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
        return as_read(given.as_data())
    path = Path(given)
    data = parse_json(content_of(path), source=path, unique=True)
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
    same = digest_of_draw(lab) == registration.data.prompts_sha256
    if not same:
        _blame_other_code(registration, checks, "draws other prompts than the one that registered the claim")
    return _check("prompts", same, "the prompts that are drawn are others than were registered")


def _test_check(
    registration: Registration, claim: Claim, lab: Lab, specimen: Specimen, checks: list[IntegrityCheck]
) -> IntegrityCheck:
    """Whether the test that would be run, and the sentence it decides, are those that were registered."""
    stated = registration.test
    test = registered_test(claim, lab, specimen, seed=stated.seed, tried=stated.tried).as_data()
    registered = stated.as_data()
    others = [name for name, value in as_read(test).items() if registered.get(name) != value]
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


def _refused(
    data: Mapping[str, Any], checks: list[IntegrityCheck], start: float, *, signer: str | None = None
) -> ClaimVerdict:
    """The verdict on a file that a check found wrong: something of its seal is missing, or something was altered."""
    seal = data.get("seal")
    stated = seal.get("digest") if isinstance(seal, Mapping) else None
    return ClaimVerdict(
        result="STRIPPED" if is_stripped(data, signer=signer) else "ALTERED",
        reason="; ".join(f"{check.name}: {check.detail}" for check in _failed(checks)),
        registration=stated if isinstance(stated, str) else None,
        checks=tuple(checks),
        verified=now(),
        code=code_version(),
        seconds=round(time.perf_counter() - start, 3),
        proven=(Proven(by="nothing", detail="nothing: the file is not as it was sealed, or not sealed"),),
    )
