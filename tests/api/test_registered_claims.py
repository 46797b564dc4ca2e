"""Registered claims: PASS and FAIL by what the engine finds, ALTERED or STRIPPED what is changed, and who is caught."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.cli.test_own_behaviour import rows
from tests.model.tiny_gpt2 import write_tiny_gpt2
from vesalius.errors import BadInput, Failed
from vesalius_bench.claims import verify
from vesalius_bench.claims.documents import ClaimVerdict, Registration
from vesalius_bench.sealing import digest, signing_key, with_seal

#: What a file that was changed is.
REFUSED = ("ALTERED", "STRIPPED")
CLAIM = {"kind": "necessary", "component": "L0_MLP", "replacement": "resample"}
#: L0_MLP is in the circuit of frac_prevs: that it is necessary is known, and its effect is far from 0.2 and from 0.9.
GIVEN = {
    "specimen": "frac_prevs",
    "hypothesis": "The first MLP marks what is counted.",
    "claim": CLAIM,
    "prediction": {"verdict": "supported", "value": {"measure": "effect", "at_least": 0.2, "at_most": 0.9}},
    "n": 64,
    "circuit": ["L0_MLP"],
}


@pytest.fixture(scope="module")
def registration() -> Registration:
    return ves.register_claim(GIVEN)


@pytest.fixture(scope="module")
def verdict(registration: Registration) -> ClaimVerdict:
    return ves.verify_claim(registration)


def written(directory: Path, data: Any, name: str = "claim.json") -> Path:
    path = directory / name
    path.write_text(json.dumps(data))
    return path


def alterations(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every document that differs in one place: a leaf of another value, a field gone, a field or an entry more."""

    def replaced(value: Any) -> Any:
        whole = copy.deepcopy(data)
        node = whole
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value
        return whole

    node = data
    for step in path:
        node = node[step]
    where = "/".join(map(str, path)) or "document"
    if isinstance(node, dict):
        for name in node:
            yield f"{where}: without {name}", _without(data, path, name)
            yield from alterations(data, (*path, name))
        yield f"{where}: one field more", _with(data, path, "banana", 1)
    elif isinstance(node, list):
        if path:
            yield f"{where}: one entry more", replaced([*node, "banana"])
        for place in range(len(node)):
            yield from alterations(data, (*path, place))
    else:
        others = {bool: lambda v: not v, str: lambda v: f"{v}x", int: lambda v: v + 1, float: lambda v: v + 0.01}
        yield where, replaced(others.get(type(node), lambda v: "banana")(node))


def _without(data: Any, path: tuple[str | int, ...], name: str) -> Any:
    whole = copy.deepcopy(data)
    node = whole
    for step in path:
        node = node[step]
    del node[name]
    return whole


def _with(data: Any, path: tuple[str | int, ...], name: str, value: Any) -> Any:
    whole = copy.deepcopy(data)
    node = whole
    for step in path:
        node = node[step]
    node[name] = value
    return whole


def test_a_prediction_that_comes_true_is_a_pass(registration: Registration, verdict: ClaimVerdict) -> None:
    assert verdict.result == "PASS"
    assert (verdict.registration, verdict.record.verdict) == (registration.seal.digest, "supported")
    assert [check.passed for check in verdict.checks] == [True] * 5
    assert "effect is" in verdict.reason


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        ("refuted", "predicted refuted, found supported"),
        ({"verdict": "supported", "value": {"at_least": 0.99}}, "predicted at least 0.99"),
        ({"verdict": "supported", "value": {"at_most": 0.01}}, "predicted at most 0.01"),
        ({"verdict": "supported", "value": {"measure": "banana", "at_most": 1}}, "no value of banana"),
    ],
)
def test_a_prediction_that_does_not_is_a_fail(prediction: Any, said: str) -> None:
    verdict = ves.verify_claim(ves.register_claim({**GIVEN, "prediction": prediction}))
    assert verdict.result == "FAIL"
    assert said in verdict.reason


def test_a_false_claim_that_was_predicted_to_fall_is_a_pass() -> None:
    given = {**GIVEN, "claim": {**CLAIM, "component": "L0H0"}, "prediction": "refuted"}
    assert ves.verify_claim(ves.register_claim(given)).result == "PASS"


def test_registering_writes_what_is_needed_before_the_run(registration: Registration, tmp_path: Path) -> None:
    test, data = registration.test, registration.data
    assert (test.kind, test.replacement, test.n, test.seed, test.tried, test.level) == (
        *("necessary", "resample", 64, 0, 1),
        pytest.approx(0.95),
    )
    assert test.thresholds["least_effect"] == pytest.approx(0.05)
    assert (data.specimen, data.where, len(data.weights_sha256), len(data.prompts_sha256)) == (
        *("frac_prevs", "ships with vesalius"),
        *(64, 64),
    )
    assert set(registration.code) == {"vesalius", "python", "torch", "source"}
    place = tmp_path / "claim.json"
    again = ves.register_claim({**GIVEN, "seed": 1}, out=place)
    assert Registration.read(place) == again
    assert again.data.weights_sha256 == data.weights_sha256
    assert again.data.prompts_sha256 != data.prompts_sha256
    with pytest.raises(BadInput, match="is not overwritten"):
        ves.register_claim(GIVEN, out=place)


def test_whatever_is_altered_in_a_registration_is_tampering(registration: Registration, tmp_path: Path) -> None:
    altered = dict(alterations(json.loads(json.dumps(registration.as_data()))))
    assert len(altered) > 100
    for where, data in altered.items():
        verdict = ves.verify_claim(written(tmp_path, data))
        assert verdict.result in REFUSED, where
        assert verdict.record is None, where
        assert verdict.reason.startswith("digest: "), where


def test_whatever_is_altered_in_a_verdict_is_tampering(
    registration: Registration, verdict: ClaimVerdict, tmp_path: Path
) -> None:
    claim = written(tmp_path, registration.as_data())
    place = written(tmp_path, verdict.as_data(), "verdict.json")
    assert verify.check_verdict(claim, place).result == "UNSIGNED"
    altered = dict(alterations(json.loads(json.dumps(verdict.as_data()))))
    assert len(altered) > 50
    for where, data in altered.items():
        checked = verify.check_verdict(claim, written(tmp_path, data, "altered.json"))
        assert checked.result in REFUSED, where
        shown = verify.show_claim(tmp_path / "altered.json")
        assert isinstance(shown, ClaimVerdict), where
        assert shown.result in REFUSED, where


def test_a_verdict_belongs_to_its_registration_and_to_its_evidence(
    registration: Registration, verdict: ClaimVerdict
) -> None:
    other = ves.register_claim({**GIVEN, "seed": 2})
    assert "binding" in verify.check_verdict(other, verdict).reason
    forged = ClaimVerdict.from_data(with_seal({**verdict.as_data(), "result": "FAIL"}))
    assert "result: " in verify.check_verdict(registration, forged).reason


def test_a_test_that_is_not_the_one_that_runs_is_tampering(registration: Registration, verdict: ClaimVerdict) -> None:
    """Also where the digest is computed again: what is registered must be what is run, and what was decided."""
    data = registration.as_data()
    for change in ({"kind": "sufficient"}, {"level": 1e-9}, {"experiment": "none"}, {"inputs_seed": 1}):
        forged = Registration.from_data(with_seal({**data, "test": {**data["test"], **change}}))
        assert ves.verify_claim(forged).reason.startswith("test: another test would be run"), change
    renamed = {**data, "hypothesis": {**data["hypothesis"], "sentence": "L0_MLP does nothing."}}
    assert "sentence" in ves.verify_claim(Registration.from_data(with_seal(renamed))).reason
    said = verdict.as_data()
    for change in ({"evidence": []}, {"text": "L1H2 is a MAPPER"}, {"kind": "sufficient"}):
        forged = ClaimVerdict.from_data(with_seal({**said, "record": {**said["record"], **change}}))
        assert verify.check_verdict(registration, forged).result == "ALTERED", change


def test_a_digest_that_is_computed_again_needs_a_published_one_to_be_caught(
    registration: Registration, tmp_path: Path
) -> None:
    """Alone, a digest shows only that the file is consistent: the page says so."""
    data = {**registration.as_data(), "prediction": {"verdict": "refuted", "value": None}}
    forged = written(tmp_path, with_seal(data))
    assert ves.verify_claim(forged).result == "FAIL"
    caught = ves.verify_claim(forged, published=registration.seal.digest)
    assert (caught.result, caught.reason) == ("ALTERED", "published digest: another digest was published")
    kept = written(tmp_path, registration.as_data(), "kept.json")
    assert ves.verify_claim(kept, published=registration.seal.digest).result == "PASS"


def test_a_signed_claim_cannot_be_altered_without_its_key(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    ours, theirs = (signing_key(tmp_path / f"{name}.pem") for name in ("ours", "theirs"))
    signed = ves.register_claim(GIVEN, key=tmp_path / "ours.pem")
    verdict = ves.verify_claim(signed, signer=ours, key=tmp_path / "theirs.pem")
    assert (verdict.result, verdict.seal.signer) == ("PASS", theirs)
    assert verify.check_verdict(signed, verdict, signer=theirs).result == "PASS"
    assert verify.check_verdict(signed, verdict, signer=ours).result == "ALTERED"
    data = {**signed.as_data(), "registered": "2020-01-01T00:00:00+00:00"}
    seal = {name: data["seal"][name] for name in ("signer", "signature")}
    kept_signature = {**data, "seal": {**seal, "digest": digest({**data, "seal": seal})}}
    assert ves.verify_claim(written(tmp_path, kept_signature)).reason.startswith("signature: ")
    for forged, word in ((with_seal(data), "STRIPPED"), (with_seal(data, tmp_path / "theirs.pem"), "ALTERED")):
        assert ves.verify_claim(written(tmp_path, forged), signer=ours).result == word
    for where, altered in alterations(json.loads(json.dumps(signed.as_data()["seal"]))):
        whole = {**signed.as_data(), "seal": altered}
        assert ves.verify_claim(written(tmp_path, whole)).result in REFUSED, where


def test_no_signature_can_be_borrowed(tmp_path: Path, registration: Registration, verdict: ClaimVerdict) -> None:
    """Verdicts made up by somebody with another key, or with a signature of ours from elsewhere."""
    pytest.importorskip("cryptography")
    ours, theirs = (signing_key(tmp_path / f"{name}.pem") for name in ("ours", "theirs"))
    claim = with_seal(registration.as_data(), tmp_path / "ours.pem")
    said = json.loads(json.dumps(verdict.as_data()))
    proven = {**said, "proven": [{"by": "rerun", "detail": "the test was run here"}]}

    def sealed(signer: str, signature: str) -> dict[str, Any]:
        seal = {"signer": signer, "signature": signature}
        return {**said, "seal": {**seal, "digest": digest({**said, "seal": seal})}}

    zero = "00" * 32
    made_up = [
        (with_seal(said, tmp_path / "theirs.pem"), None, "UNTRUSTED"),
        (with_seal(said, tmp_path / "theirs.pem"), ours, "ALTERED"),
        (sealed(ours, with_seal(said, tmp_path / "theirs.pem")["seal"]["signature"]), ours, "ALTERED"),
        (sealed(ours, claim["seal"]["signature"]), ours, "ALTERED"),
        (sealed(zero, zero * 2), zero, "ALTERED"),
        (with_seal(proven), None, "UNSIGNED"),
        (with_seal(said), "", "STRIPPED"),
        (with_seal(said), theirs, "STRIPPED"),
    ]
    for forged, signer, word in made_up:
        checked = verify.check_verdict(registration, written(tmp_path, forged), signer=signer)
        assert checked.result == word
        assert {one.by for one in checked.proven} == {"nothing"}


def test_another_model_is_tampering_and_other_code_is_a_note(
    registration: Registration, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ves.verify_claim(registration, specimen="3" if registration.data.specimen != "3" else "4")
    assert other.result == "PASS"  # 3 is frac_prevs by another name
    other = ves.verify_claim(registration, specimen="4")
    assert other.reason == "model weights: the model is another one than was registered"
    later = {**verify.code_version(), "vesalius": "99.0"}
    monkeypatch.setattr(verify, "code_version", lambda: later)
    noted = ves.verify_claim(registration)
    assert (noted.result, len(noted.notes)) == ("PASS", 1)
    assert "(here 99.0)" in noted.notes[0]
    monkeypatch.setattr(verify, "digest_of_draw", lambda lab: "other")
    with pytest.raises(Failed, match="draws other prompts"):
        ves.verify_claim(registration)


def test_prompts_that_differ_under_the_same_code_are_tampering(
    registration: Registration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "digest_of_draw", lambda lab: "other")
    assert ves.verify_claim(registration).reason.startswith("prompts: ")


def test_a_program_travels_with_the_claim(tmp_path: Path) -> None:
    program = {
        "variables": [
            {"name": "is_x", "op": "map", "of": ["tokens"], "formula": "x == 'x'"},
            {"name": "before", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
            {"name": "share", "op": "aggregate", "of": ["before", "is_x"], "numerical": True},
        ],
        "output": "share",
    }
    claim = {"kind": "computes", "component": "L0_MLP", "program": program}
    claim |= {"carriers": {"L0_MLP": ["is_x"], "L1H2": ["share"]}}
    place = tmp_path / "claim.json"
    ves.register_claim({"specimen": "frac_prevs", "claim": claim, "prediction": "supported", "n": 256}, out=place)
    assert ves.verify_claim(place).result == "PASS"


def test_the_rows_of_a_behaviour_travel_with_the_claim(tmp_path: Path) -> None:
    tokenizer, model = word_tokenizer(), tmp_path / "tiny"
    write_tiny_gpt2(model, d_vocab=tokenizer.size, n_ctx=48, bos=BOS)
    tokenizer._backend.save(str(model / "tokenizer.json"))
    file = tmp_path / "capitals.jsonl"
    file.write_text("\n".join(map(json.dumps, rows())))
    given: dict[str, object] = {
        "specimen": str(model),
        "behaviour": "capitals.jsonl",
        "prediction": "supported",
        "n": 4,
    }
    given["claim"] = {"kind": "necessary", "component": "L0H0"}
    place = tmp_path / "claim.json"
    registration = ves.register_claim(written(tmp_path, given, "given.json"), out=place)
    assert registration.data.rows.text == file.read_text()
    file.unlink()
    moved = model.rename(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="where the model is"):
        ves.verify_claim(place)
    assert ves.verify_claim(place, specimen=moved).result in ("PASS", "FAIL")  # what a random model does is not known
    inline = ves.register_claim({**given, "specimen": str(moved), "behaviour": rows()})
    assert inline.data.prompts_sha256 == registration.data.prompts_sha256


def test_a_natural_model_is_tested_on_held_out_prompts() -> None:
    """Its prompts are of the test split; the result follows from the verdict of the engine."""
    claim = {"kind": "inhibits", "component": "L2_MLP"}
    given = {"specimen": "arithmetic", "claim": claim, "prediction": "refuted", "n": 8}
    registration = ves.register_claim(given)
    assert (registration.test.split, registration.test.n) == ("test", 8)
    assert registration.data.behaviour.startswith("addition:")
    verdict = ves.verify_claim(registration)
    assert verdict.record.kind == "inhibits"
    assert verdict.result == ("PASS" if verdict.record.verdict == "refuted" else "FAIL")


def test_every_prompt_that_a_claim_may_draw_is_registered() -> None:
    """A claim looks at 8 prompts first and draws more where it is open; the test is run on the registered ones."""
    given = {"specimen": "arithmetic", "claim": {"kind": "inhibits", "component": "L2_MLP"}, "prediction": "refuted"}
    few, more = (ves.register_claim({**given, "n": n}) for n in (8, 24))
    assert (few.test.n, more.test.n) == (8, 24)
    assert few.data.prompts_sha256 != more.data.prompts_sha256
    verdict = ves.verify_claim(more)
    assert verdict.result in ("PASS", "FAIL"), verdict.reason


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"claim": None}, "has no 'claim'"),
        ({"banana": 1}, "field 'banana' is not known"),
        ({"claim": {"kind": "banana", "component": "L0_MLP"}}, "claim of kind 'banana' does not exist"),
        ({"claim": "necessary"}, "claim: give an object"),
        ({"claim": {**CLAIM, "component": "L9H0"}}, "L9H0"),
        ({"prediction": "untested"}, "prediction: verdict"),
        ({"prediction": {"verdict": "supported", "value": {}}}, "a bound needs"),
        ({"prediction": {"verdict": "supported", "value": {"at_least": 1, "at_most": 0}}}, "is above"),
        ({"seed": "one"}, "seed='one' is not a whole number"),
        ({"n": 0}, "n"),
        ({"tried": 0}, "tried=0"),
        ({"circuit": 3}, "circuit: give a list"),
        ({"specimen": "banana"}, "specimen 'banana' is not known"),
        ({"specimen": ["banana"]}, "specimen must be a name"),
        ({"behaviour": "banana"}, "behaviour 'banana' does not exist"),
        ({"behaviour": "banana.jsonl"}, "cannot be read"),
        ({"behaviour": 3}, "behaviour: give a name"),
        ({"metric": 3}, "metric must be a text"),
    ],
)
def test_bad_claims_are_refused_in_one_line(change: dict, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        ves.register_claim({**GIVEN, **change})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no registered claim"):
        ves.verify_claim(written(tmp_path, {"a": 1}))
    (tmp_path / "twice.json").write_text('{"seal": 1, "seal": 2}')
    with pytest.raises(BadInput, match="occurs more than once"):
        ves.verify_claim(tmp_path / "twice.json")
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(BadInput, match="not readable as TOML"):
        ves.register_claim(tmp_path / "bad.toml")
