"""The options of verbs and commands, each declared once as a field of a record.

Where verbs differ in a default, the record is given with that default (`Draw(n=16)`), never declared a second time.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from vesalius.errors import BadInput, quoted, require_whole
from vesalius.options.objects import Configured
from vesalius.options.records import Record, flag

#: A directory; True for one under `vesalius-runs`, named after the request; None or False to write nothing.
Out = str | Path | bool | None
MOST_PROMPTS = 100_000
NEURON_RULES = ("gradient", "relp", "relp-qk")
#: Seeds of controls and held-out prompts are larger than the one requested, and all must fit 64 bits.
LARGEST_SEED = 2**62


def require_drawable(n: int, seed: int) -> None:
    """Refuse numbers of prompts and seeds that are none, or out of range."""
    require_whole(n=n, seed=seed)
    if not 1 <= n <= MOST_PROMPTS:
        raise BadInput(f"an experiment on {n} prompts is not possible; request 1 to {MOST_PROMPTS:,}")
    if not 0 <= seed <= LARGEST_SEED:
        raise BadInput(f"seed {seed} cannot be used; choose one from 0 to {LARGEST_SEED}")


class Read(Record, kw_only=True):
    """How a model is read. A request takes these from the loaded specimen."""

    tokenizer: Annotated[Any, flag("Directory of a tokenizer for a natural model. Default: its own.", rare=True)] = None
    revision: Annotated[str | None, flag("Revision of a hub id.", rare=True)] = None
    dtype: Annotated[
        Any, flag("Number format of a natural model: auto (as stored), float32, bfloat16, float16.", rare=True)
    ] = "auto"
    device: Annotated[
        Any,
        flag(
            "cpu, cuda, mps, or several over which layers are spread: cuda:0,cuda:1. auto: for natural models a GPU "
            "where there is one, several where the model does not fit one.",
            rare=True,
        ),
    ] = "auto"


class Load(Read):
    """How a specimen is read, and what it is studied for."""

    behaviour: Annotated[
        Any,
        flag(
            "What a natural model is studied for: induction, ioi, ..., addition:high=99,shots=0, a plug-in, or a file "
            "of rows (.jsonl, .json, .csv), of templates (.toml), or a dataset's directory.",
            "--behaviour",
            "-b",
        ),
    ] = None
    metric: Annotated[
        Any,
        flag(
            "What is measured of the answers: logit-difference, probability, probability-difference, "
            "log-probability, loss or kl. Default: logit-difference, or log-probability without wrong answers.",
            rare=True,
        ),
    ] = None


class Sample(Record):
    """How many prompts, and which."""

    n: Annotated[int, flag("Prompts.", least=1, asked="always", word="n{}")] = 16
    seed: Annotated[int, flag("Seed of the prompts and of what is drawn at random.", asked="always", word="seed{}")] = 0

    def __post_init__(self) -> None:
        require_drawable(self.n, self.seed)


class Draw(Sample):
    """Which prompts of a behaviour."""

    split: Annotated[
        str,
        flag("Pool of names, templates and fillers: train, validation or test.", rare=True, word="split{}"),
    ] = "test"


class Parts(Record):
    """Where parts of the work run."""

    engine: Annotated[
        str | None,
        flag("Run parts elsewhere: local (processes) or ray. Default: all in this process.", rare=True, asked="never"),
    ] = None
    jobs: Annotated[
        int | None,
        flag(
            "Parts at a time. Default: 2 with --engine; alone it means --engine local.",
            least=1,
            rare=True,
            asked="never",
        ),
    ] = None


class Knockout(Record):
    """What a sweep replaces, and by what."""

    kind: Annotated[
        Any,
        flag(
            "zero, mean, resample (from the counterfactual prompt) or value-bias; several with commas are compared. "
            "Default: resample for natural models, as in `discover`; zero for others.",
            "--kind",
            "-k",
            asked="always",
            word="{}",
        ),
    ] = None
    pairs: Annotated[bool, flag("Replace every pair of components instead of each alone.", "--pairs", word="pairs")] = (
        False
    )
    components: Annotated[
        Any,
        flag("Only these, comma-separated, in any notation: L1H2,a0.h1,m3. Default: all.", "--components", "-c"),
    ] = None

    def __post_init__(self) -> None:
        if self.kind is not None:  # an ablation, such as `Mean()`, goes by its name
            object.__setattr__(self, "kind", str(self.kind))


class Edit(Record):
    """What takes the place of components in one question: values of which kind, where, and on which prompt."""

    kind: Annotated[
        Any,
        flag(
            "zero, mean, resample (from the counterfactual) or patch (--source). Default: as in `sweep`; patch with "
            "--source; zero on a prompt without one.",
            "--kind",
            "-k",
            asked="always",
            word="{}",
        ),
    ] = None
    at: Annotated[str | int | None, flag("Only at this position: a role of the prompts, end, or a number from 0.")] = (
        None
    )
    prompt: Annotated[Any, flag("One prompt of your own: a text, or a JSON list of tokens.")] = None
    source: Annotated[Any, flag("The prompt that values are taken from, of as many tokens.")] = None

    def __post_init__(self) -> None:
        if self.prompt is None and self.source is not None:
            raise BadInput("`source` is what `prompt` is patched from; give `prompt` too")
        if self.kind is None and self.prompt is not None:
            object.__setattr__(self, "kind", "zero" if self.source is None else "patch")
        if self.kind is not None:
            object.__setattr__(self, "kind", str(self.kind))
        if self.prompt is None and self.kind == "patch":
            raise BadInput("kind 'patch' takes values from a prompt of yours; give `prompt` and `source`")
        if self.prompt is not None and self.source is None and self.kind != "zero":
            raise BadInput(
                f"kind {self.kind!r} on one prompt takes values from another; give `source`, or use kind 'zero'"
            )


class Force(Record):
    """Whether work goes on where there may be nothing to find."""

    force: Annotated[
        bool, flag("Continue although the model does not perform the behaviour, or the contrast is empty.", "--force")
    ] = False


class Selected(Record):
    """By which rule a circuit is cut to a size."""

    select: Annotated[
        str | Sequence[str] | None,
        flag(
            "Cut the circuit by a rule: top, greedy, exact, bootstrap or positive-ratio; others after a comma are "
            "compared with it.",
            word="{}",
        ),
    ] = None
    size: Annotated[
        int | None,
        flag("Edges (or components) that --select keeps at most. Default: enough to keep 0.9.", least=1, word="size{}"),
    ] = None


class Cut(Selected):
    """How small a circuit is looked for, or by which rule it is cut to a size."""

    keep: Annotated[
        float | None,
        flag(
            "Share of the behaviour that the circuit keeps on prompts which chose nothing. Default: 0.8, or 0.95 for a "
            "listed vocabulary.",
            word="keep{}",
        ),
    ] = None
    most: Annotated[
        int | None,
        flag("Components that the circuit has at most. Default: a fifth of the model.", least=1, word="most{}"),
    ] = None


class Checked(Record):
    """How what was found is checked, and which other circuits are searched beside it."""

    checks: Annotated[
        bool,
        flag("Leave out the checks: faithfulness, stability, specificity, detectors.", "--quick", off="quick"),
    ] = True
    rivals: Annotated[
        int,
        flag(
            "Search so many other circuits as faithful, with little overlap.",
            least=0,
            most=10,
            rare=True,
            word="rivals{}",
        ),
    ] = 0
    rivals_by: Annotated[str, flag("What rivals are made of: components or edges.", rare=True, word="rivals_by{}")] = (
        "components"
    )


def require_share(keep: float) -> None:
    """Refuse a share that a circuit cannot keep."""
    if not 0 < keep <= 1:
        raise BadInput(f"keep={keep:g} is not a share of the behaviour; give a number above 0, at most 1")


class Scoring(Record):
    """How neurons are scored, and how much of the behaviour they keep."""

    method: Annotated[
        str,
        flag(
            "How neurons are scored: relp, relp-qk or gradient.",
            "--method",
            "-m",
            method_of=("neurons",),
            asked="always",
            word="{}",
        ),
    ] = "relp-qk"
    keep: Annotated[
        float, flag("Share of the behaviour to keep, above 0, at most 1.", asked="always", word="keep{:g}")
    ] = 0.8

    def __post_init__(self) -> None:
        if self.method not in NEURON_RULES:
            raise BadInput(f"method {self.method!r} does not score neurons; choose one of {', '.join(NEURON_RULES)}")
        require_share(self.keep)


class Charted(Record):
    """How the atlas of a model is made."""

    seed: Annotated[int, flag("Seed of the random tokens.", word="seed{}")] = 0
    words: Annotated[
        Sequence[str],
        flag(
            "A word that heads are asked about, with its leading space: which tokens does each write where it reads "
            "it? May be given several times. Default: four words.",
            "--word",
        ),
    ] = ()

    def __post_init__(self) -> None:
        require_drawable(1, self.seed)


class Pruned(Record):
    """What of a circuit is measured, what takes the place of everything else, and how much has to stay."""

    least: Annotated[float, flag("Prune what scores less than this, by magnitude.", least=0.0)] = 0.0
    pin: Annotated[Any, flag("Components and edges that stay whatever they score: L1H2,a0.h1->m1.")] = None
    prune: Annotated[Any, flag("Components and edges to prune as well.")] = None
    kind: Annotated[Any, flag("resample, zero, mean or value-bias; edges are resampled.", "--kind", "-k")] = "resample"
    keep: Annotated[float, flag("Share of the behaviour that the circuit has to keep, above 0, at most 1.")] = 0.8

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", str(self.kind))
        require_share(self.keep)


class HowFound(Record):
    """The discovery method, and the options of methods."""

    method: Annotated[
        str | None,
        flag(
            "best, sweep, eap, eap-ig, relp, relp-qk, gim, masks, edge-masks, ensemble, elimination, acdc, bandit, rl, "
            "or a plug-in; options behind it: masks:steps=300. Default: best, or sweep for a listed vocabulary.",
            "--method",
            "-m",
            method_of=("discover",),
        ),
    ] = None
    budget: Annotated[int | None, flag("bandit, rl: heads to pay for (default 50, or all).")] = None
    paper: Annotated[bool, flag("rl: as published, quirks included; says which.", "--paper")] = False
    seeds: Annotated[int | None, flag("bandit, rl: searches, each with its own random seed (1).", least=1)] = None
    steps: Annotated[
        int | None,
        flag(
            "eap-ig, best: gradients taken (5). masks: steps of Adam (150). rl: train a policy here for so many steps "
            "(0: the packaged one).",
            least=0,
        ),
    ] = None


class CircuitMethod(Record):
    """Which method finds the circuit that is explained."""

    circuit_from: Annotated[
        str | None,
        flag("Discover the circuit by this method first: sweep, eap, eap-ig, relp, acdc or a plug-in.", rare=True),
    ] = None


class CircuitFrom(CircuitMethod):
    """Which circuit is explained, where it is not given by its components."""

    circuit: Annotated[
        Any,
        flag(
            "A circuit (MIB JSON), a discovery.json, a directory of `vesalius discover`, or a run of `bench discovery` "
            "(--circuit-from names its method): explain what scores at least a tenth of the largest."
        ),
    ] = None


class Who(Record):
    """Who explains."""

    scientist: Annotated[
        Any,
        flag(
            "Who explains: builtin, hyve with a language model, hybrid (built in, then a language model for the rest), "
            "a plug-in, command:PROGRAM that speaks JSON lines, or package.module:function. Default: hyve with "
            "--backbone.",
            method_of=("explain", "bench circuits"),
        ),
    ] = None
    seed: Annotated[int, flag("Seed of all inputs; the same seed, the same explanation.")] = 0
    leave_out: Annotated[
        str | None, flag("A family of hypotheses that the built-in scientist must do without.", rare=True)
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.scientist, str | Configured | None):
            raise BadInput(f"scientist={quoted(self.scientist, 40)} is not a text; give a name, or a scientist")


class Explaining(Who):
    """Who explains, and how much of the model."""

    n: Annotated[
        int | None,
        flag(
            "The most held-out prompts that a claim draws until it is decided, for natural models. Default: 128.",
            least=4,
        ),
    ] = None
    top: Annotated[
        int | None,
        flag(
            "At most this many components are explained, of a natural model. Default: as many as the behaviour needs, "
            "up to a fifth of the model; the 24 strongest are described.",
            least=1,
            rare=True,
        ),
    ] = None
    no_ladder: Annotated[
        bool,
        flag(
            "Fit no attention programs and do not run the explanation in the model's place, of a natural model.",
            rare=True,
        ),
    ] = False


#: The prompts of each verb, where they are not `Draw()`.
SWEPT, DISCOVERED = Draw(n=16), Draw(n=32)
NEURONS, FAITHFUL = Draw(n=16), Draw(n=12, split="validation")
