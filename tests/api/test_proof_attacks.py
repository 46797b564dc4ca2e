"""Files that want to be believed: claims and verdicts that say more than is proven. None is PASS, FAIL or believed."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from vesalius.cli.terminal import lines_of
from vesalius.errors import BadInput
from vesalius_bench.claims.documents import ClaimVerdict, Registration
from vesalius_bench.claims.verify import check_verdict, show_claim
from vesalius_bench.sealing import digest, seal_faults, signing_key, with_seal

pytest.importorskip("cryptography")
GIVEN = {
    "specimen": "41",
    "hypothesis": "The first MLP computes.",
    "claim": {"kind": "necessary", "component": "L0_MLP", "replacement": "resample"},
    "prediction": {"verdict": "supported"},
    "n": 16,
}
Data = dict[str, Any]
#: Public keys that are points of small order: the neutral one, of order 2, 4 and 8, and one that is written otherwise.
WEAK = {
    "the neutral point": "01" + "00" * 31,
    "the neutral point with its sign": "01" + "00" * 30 + "80",
    "a point of order 2": "ec" + "ff" * 30 + "7f",
    "a point of order 4": "00" * 32,
    "a point of order 8": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "another of order 8": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "the neutral point in other digits": "ee" + "ff" * 30 + "7f",
}
#: The order of the group: a signature whose second half is larger by it says the same.
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, Data, str, Path]:
    """A claim and its verdict, which is signed, with the public key and the private one."""
    place = tmp_path_factory.mktemp("keys") / "ours.pem"
    public = signing_key(place)
    registration = ves.register_claim(GIVEN)
    verdict = ves.verify_claim(registration, key=place)
    assert check_verdict(registration, verdict, signer=public).result == "PASS"
    return json.loads(json.dumps(registration.as_data())), json.loads(json.dumps(verdict.as_data())), public, place


def written(place: Path, data: Any) -> Path:
    place.write_text(data if isinstance(data, str) else json.dumps(data))
    return place


def sealed(data: Data, **seal: Any) -> Data:
    """The document with a seal of these fields, its digest computed anew."""
    return {**data, "seal": {**seal, "digest": digest({**data, "seal": seal})}}


@pytest.mark.parametrize("name", WEAK)
def test_no_key_that_anybody_can_sign_for_is_trusted(name: str, documents: tuple[Data, Data, str, Path]) -> None:
    """For the neutral point R = A, S = 0 is a signature of anything."""
    _, verdict, _, _ = documents
    for first in (WEAK["the neutral point"], WEAK[name]):
        made = sealed(verdict, signer=WEAK[name], signature=first + "00" * 32)
        assert seal_faults(made, signer=WEAK[name])["signature"] is not None


def second_half_larger(verdict: Data) -> Data:
    signature = bytes.fromhex(verdict["seal"]["signature"])
    larger = (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")
    return sealed(verdict, signer=verdict["seal"]["signer"], signature=(signature[:32] + larger).hex())


def unsigned(verdict: Data, **fields: Any) -> Data:
    return with_seal({**verdict, **fields})


def kept_signature(verdict: Data, **fields: Any) -> Data:
    seal = {name: verdict["seal"][name] for name in ("signer", "signature")}
    return sealed({**verdict, **fields}, **seal)


#: Verdicts made of one that is signed by somebody without the key. None stands for documents that are refused unread.
FORGED: dict[str, Callable[[Data, str], Any]] = {
    "a signature of another form": lambda verdict, public: second_half_larger(verdict),
    "the key in capitals and another result": lambda v, p: kept_signature(
        {**v, "seal": {**v["seal"], "signer": p.upper()}}, result="FAIL"
    ),
    "another result under the signature": lambda v, p: kept_signature(v, result="FAIL"),
    "another result, signed by nobody": lambda v, p: unsigned(v, result="FAIL"),
    "proof written by hand": lambda v, p: unsigned(v, proven=[{"by": "signature", "detail": f"signed by {p}"}]),
    "evidence left out": lambda v, p: kept_signature(v, record={**v["record"], "evidence": []}),
    "no record": lambda v, p: kept_signature(v, record=None),
    "the seal inside the seal": lambda v, p: sealed(v, signer=None, signature=None, seal=v["seal"]),
    "the seal as a list": lambda v, p: {**v, "seal": [v["seal"]]},
    "the seal as a text": lambda v, p: {**v, "seal": json.dumps(v["seal"])},
    "the signer as a list": lambda v, p: sealed(v, signer=[p], signature=v["seal"]["signature"]),
    "a word beside the seal": lambda v, p: sealed(v, signer=None, signature=None, note=f"signed by {p}"),
    "the result in letters that look alike": lambda v, p: unsigned(v, result="\u0420ASS"),
    "the result twice": lambda v, p: json.dumps(v)[:-1] + ', "result": "PASS"}',
    "the result twice, once escaped": lambda v, p: json.dumps(v)[:-1] + ', "re\\u0073ult": "PASS"}',
    "a number that is none": lambda v, p: json.dumps(v)[:-1] + ', "seconds": NaN}',
    "a verdict that says it is a claim": lambda v, p: unsigned(v, document="registered claim"),
    "a field of neither": lambda v, p: unsigned(v, trusted=True),
}


@pytest.mark.parametrize("name", FORGED)
def test_no_forged_verdict_is_believed(name: str, documents: tuple[Data, Data, str, Path], tmp_path: Path) -> None:
    claim, verdict, public, _ = documents
    forged = written(tmp_path / "forged.json", FORGED[name](verdict, public))
    registered = written(tmp_path / "claim.json", claim)
    for signer in (public, None):
        for look in (partial(check_verdict, registered, forged), partial(show_claim, forged)):
            with suppress(BadInput):
                found = look(signer=signer)
                assert isinstance(found, ClaimVerdict)
                assert found.result not in ("PASS", "FAIL")
                assert {one.by for one in found.proven} == {"nothing"}


def test_a_sentence_cannot_print_a_line_of_its_own(documents: tuple[Data, Data, str, Path], tmp_path: Path) -> None:
    """What a stranger wrote into a claim is one line where it is printed, without codes for the terminal."""
    claim = json.loads(json.dumps(documents[0]))
    lie = "x\nproven: the test was run here\n\x1b[2K\rPASS: predicted supported, found supported"
    claim["hypothesis"]["text"] = claim["hypothesis"]["sentence"] = lie
    shown = show_claim(written(tmp_path / "claim.json", with_seal(claim)))
    assert isinstance(shown, Registration)
    lines = list(lines_of(shown.view(), width=100))
    assert not [line for line in lines if line.startswith(("proven: the test", "PASS"))]
    assert not [line for line in lines if not line.isprintable()]


@pytest.mark.parametrize("kind", ["device", "pipe", "directory"])
def test_what_has_no_end_is_not_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vesalius import files

    monkeypatch.setattr(files, "MOST_BYTES", 1 << 16)
    place = Path("/dev/zero") if kind == "device" else tmp_path
    if kind == "pipe":
        reading, writing = os.pipe()
        os.write(writing, b"{" * 4096)
        os.close(writing)
        place = Path(f"/dev/fd/{reading}")
    with pytest.raises(BadInput, match=r"cannot be read|the most that is read|not readable"):
        show_claim(place)
