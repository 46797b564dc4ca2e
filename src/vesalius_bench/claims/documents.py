"""A registered claim: hypothesis, prediction and test, written and sealed before the test is run; and its verdict.

Another laboratory reruns the file with one command: it holds the claim, the rows of the behaviour and the digests of
the model's weights and of the prompts that are drawn.
"""

from typing import Any, Literal

from pydantic import FiniteFloat, model_validator

from vesalius.documents.base import FrozenMap, Record, ResultDocument
from vesalius.documents.claims import ClaimRecord, Claims
from vesalius.documents.view import Answer, Facts, Section, Sheet, Text, View, cut_text

CLAIM_FILE = "claim.json"
VERDICT_FILE = "verdict.json"
ClaimResult = Literal["PASS", "FAIL", "ALTERED", "STRIPPED", "UNSIGNED", "UNTRUSTED"]
#: The exit code of each result; 2 is bad input.
EXIT_CODES: dict[ClaimResult, int] = {
    "PASS": 0,
    "FAIL": 1,
    "ALTERED": 3,
    "STRIPPED": 4,
    "UNSIGNED": 5,
    "UNTRUSTED": 6,
}


class Seal(Record):
    """What closes a document: the SHA-256 digest of its canonical JSON and, where it was signed, the Ed25519 signature
    and the public key that checks it, both in hexadecimal.
    """

    signer: str | None = None
    signature: str | None = None
    digest: str


class RegisteredHypothesis(Record):
    """What is claimed: in the author's words, as the engine's sentence, and as the typed claim that is decided."""

    text: str | None = None
    sentence: str
    claim: FrozenMap[str, Any]


class PredictedBound(Record):
    """Where a value must lie: that of the first evidence with this measure, or of the first evidence of all."""

    measure: str | None = None
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "PredictedBound":
        if self.at_least is None and self.at_most is None:
            raise ValueError("a bound needs at_least, at_most or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least {self.at_least} is above at_most {self.at_most}")
        return self


class RegisteredPrediction(Record):
    """The verdict that the test will give and, optionally, where the measured value will lie."""

    verdict: Literal["supported", "refuted"]
    value: PredictedBound | None = None


class RegisteredTest(Record):
    """The experiment and how it is decided. `inputs_seed` draws the held-out inputs of `seed`; `level` is that of every
    interval, from the number of claims `tried`; `thresholds` are the bars of the rules of this version.
    """

    kind: str
    replacement: str | None = None
    experiment: str
    split: str
    n: int
    seed: int
    inputs_seed: int
    tried: int
    level: float
    circuit: tuple[str, ...]
    thresholds: FrozenMap[str, float]


class BehaviourRows(Record):
    """The file of a behaviour, whole."""

    name: str
    text: str
    sha256: str


class RegisteredData(Record):
    """What is tested: the model by name and weights, the behaviour by name or rows, and the prompts that are drawn.

    `where` says where another laboratory gets the model. `weights_sha256` covers shape and weights, `prompts_sha256`
    the tokens of every held-out prompt and of its counterfactual.
    """

    specimen: str
    where: str
    weights_sha256: str
    behaviour: str | None = None
    rows: BehaviourRows | None = None
    prompts_sha256: str
    metric: str | None = None
    tokenizer: str | None = None
    revision: str | None = None
    dtype: str | None = None


class Registration(ResultDocument, kind="registration"):
    """A claim before its test: nothing of it may change afterwards. `code` has the versions and, as `source`, the
    digest of the package's own source files.
    """

    FILE = CLAIM_FILE
    RANK = None
    REMEDY = "run `vesalius claims register` again"

    document: Literal["registered claim"] = "registered claim"
    registered: str
    hypothesis: RegisteredHypothesis
    prediction: RegisteredPrediction
    test: RegisteredTest
    data: RegisteredData
    code: FrozenMap[str, str]
    seal: Seal

    def view(self) -> View:
        """What was predicted, and what the digest stands for."""
        signed = f"signed by {self.seal.signer}" if self.seal.signer else "not signed"
        on = f" on {self.data.behaviour}" if self.data.behaviour else ""
        parts = {"prediction": self.prediction, "test": self.test, "data": self.data}
        rows = [
            (part, name, value)
            for part, record in parts.items()
            for name, value in record.as_data().items()
            if name != "rows"
        ]
        return View(
            "Registered claim",
            Answer(f"registered {self.registered}: {cut_text(self.hypothesis.sentence, 200)}"),
            [
                Facts(
                    [
                        (
                            "",
                            f"predicted {self.prediction.verdict}, {self.data.specimen}{on}, n {self.test.n}, seed "
                            f"{self.test.seed}",
                        ),
                        ("", f"digest {self.seal.digest}, {signed}"),
                    ]
                ),
                Sheet(("part", "field", "value"), rows, title="What was registered", terminal=0),
            ],
        )


class IntegrityCheck(Record):
    """One check of a registered claim; `passed` is None for what is said without a part in the result."""

    name: str
    passed: bool | None
    detail: str


class Proven(Record):
    """What a verification proves, weakest last: that the test was `rerun` here; a `signature` by a key that the user
    named; a `digest` that was published before; or `nothing`, where all that is known stands in the file itself.
    """

    by: Literal["rerun", "signature", "digest", "nothing"]
    detail: str


class ClaimVerdict(ResultDocument, kind="verdict"):
    """What became of a registered claim, bound to its registration by that one's digest.

    PASS: the prediction came true. FAIL: it did not; both only where the test was rerun, or where somebody whom the
    user named signed the verdict. Otherwise nothing was run: ALTERED, a check failed; STRIPPED, a seal or signature is
    missing; UNSIGNED, nobody signed the verdict; UNTRUSTED, a key signed it that the user did not name. `record` is the
    claim with its evidence, `code` the versions that ran the test, `proven` what this verification proves of test and
    claim: what it said when the file was written proves nothing to a later reader.
    """

    FILE = VERDICT_FILE
    RANK = None
    REMEDY = "run `vesalius claims verify` again"

    document: Literal["verdict"] = "verdict"
    result: ClaimResult
    reason: str
    registration: str | None
    checks: tuple[IntegrityCheck, ...]
    record: ClaimRecord | None = None
    verified: str
    code: FrozenMap[str, str]
    seconds: float
    proven: tuple[Proven, ...] = ()
    seal: Seal | None = None

    @property
    def notes(self) -> list[str]:
        """What is said of the checks without a part in the result."""
        return [check.detail for check in self.checks if check.passed is None]

    def view(self) -> View:
        """The result, its checks, and the evidence."""
        sections: list[Section] = [
            Facts([("", f"proven: {one.detail}") for one in self.proven]),
            *([Text([f"note: {text}" for text in self.notes])] if getattr(self, "notes", ()) else []),
            Sheet.of([one.as_data() for one in self.checks], title="Checks", terminal=0),
        ]
        if self.record is not None:
            sections.append(Text([repr(one) for one in self.record.evidence], terminal_only=True))
            sections.append(Claims("the claim", (self.record,), title="Evidence"))
        if self.seal is not None:
            signed = f"signed by {self.seal.signer}" if self.seal.signer else "not signed"
            sections.append(Facts([("", f"verdict digest {self.seal.digest}, {signed}")]))
        return View("Verdict on a claim", Answer(f"{self.result}: {self.reason}"), sections)
