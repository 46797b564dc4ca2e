"""Seals and sealed texts: what is altered is seen, a passphrase opens, and a key is never overwritten."""

import hashlib
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vesalius.errors import BadInput
from vesalius_bench.sealing import canonical, digest, open_text, seal_faults, seal_text, signing_key, with_seal

#: Cheap parameters: what is tested is the construction, not its cost.
QUICK = {"n": 16, "r": 8, "p": 1}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=4,
)


def test_the_digest_is_that_of_sorted_json_without_spaces() -> None:
    assert canonical({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"é"]}'.encode()
    assert digest({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


@settings(max_examples=25)
@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4), JSON)
def test_a_seal_survives_a_file_and_sees_another_field(body: dict, extra: object) -> None:
    sealed = json.loads(json.dumps(with_seal(body)))
    assert seal_faults(sealed) == {"digest": None}
    assert seal_faults(sealed, published=sealed["seal"]["digest"]) == {"digest": None, "published digest": None}
    name = "".join(body) + "x"
    assert seal_faults({**sealed, name: extra})["digest"]


def test_a_signature_is_held_against_fields_and_signer(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    ours, theirs = (signing_key(tmp_path / name) for name in ("ours.pem", "theirs.pem"))
    sealed = with_seal({"a": 1}, tmp_path / "ours.pem")
    assert set(seal_faults(sealed, signer=ours).values()) == {None}
    forged = with_seal({"a": 2}, tmp_path / "theirs.pem")
    assert set(seal_faults(forged).values()) == {None}
    assert seal_faults(forged, signer=ours)["signer"]
    assert seal_faults(with_seal({"a": 2}), signer=ours)["seal"]
    # The signature of another document, with a digest that fits.
    body = {"a": 2, "seal": {name: sealed["seal"][name] for name in ("signer", "signature")}}
    moved = {"a": 2, "seal": {**body["seal"], "digest": digest(body)}}
    assert (seal_faults(moved)["digest"], bool(seal_faults(moved)["signature"])) == (None, True)
    assert ours != theirs


def test_a_key_is_its_owners_and_is_not_overwritten(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    file = tmp_path / "key.pem"
    signing_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(BadInput, match="exists already"):
        signing_key(file)
    file.write_text("no key")
    with pytest.raises(BadInput, match="is no Ed25519 key"):
        with_seal({}, file)


def test_a_sealed_text_opens_with_its_passphrase_alone() -> None:
    pytest.importorskip("cryptography")
    sealed = json.loads(json.dumps(seal_text("the answer", "correct horse", cost=QUICK)))
    assert "answer" not in json.dumps(sealed)
    assert open_text(sealed, "correct horse") == "the answer"
    with pytest.raises(BadInput, match="does not open with this passphrase"):
        open_text(sealed, "wrong horse")
    with pytest.raises(BadInput, match="at least 8"):
        seal_text("the answer", "short")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "none"},
        {"scrypt": {"n": 2**40, "r": 8, "p": 1}},
        {"scrypt": {"n": 32, "r": 8, "p": 1}},
        {"salt": "00" * 16},
        {"nonce": "00" * 12},
        {"text": "AAAA"},
        {"text": None},
    ],
)
def test_an_altered_sealed_text_is_refused(change: dict) -> None:
    pytest.importorskip("cryptography")
    sealed = {**seal_text("the answer", "correct horse", cost=QUICK), **change}
    with pytest.raises(BadInput, match=r"sealed by|damaged|does not open"):
        open_text(sealed, "correct horse")
