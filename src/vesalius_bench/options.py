"""The options of the benches, declared once, as `vesalius.options` does those of the core.

A field is a keyword of the verb and a flag of the command. Nothing heavy is imported here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from vesalius.options import Ask, Draw, OptionRecord, Sample, flag


class StudyOptions(OptionRecord):
    """What decides the circuit of a study."""

    circuit: Annotated[
        Any,
        flag(
            "A circuit (MIB JSON), a discovery.json or a directory of `vesalius discover`. Default: the published ten "
            "components for a model of Llama-3-8B's shape, else one is discovered."
        ),
    ] = None
    behaviour: Annotated[
        Any,
        flag(
            "The sums: addition:high=99,shots=0, ... Default: the published ones for Llama-3-8B, those that "
            "`arithmetic` was trained on, else sums of digits.",
            "--behaviour",
            "-b",
        ),
    ] = None
    n: Annotated[
        int, flag("Prompts of each step, answered correctly; where the model has fewer, those it has.", least=4)
    ] = 99
    top: Annotated[
        int, flag("Components of a discovered circuit by effect; backups come on top.", least=1, rare=True)
    ] = 24
    seed: Annotated[int, flag("Seed of all prompts.")] = 0
    quick: Annotated[bool, flag("Leave out the checks of a discovered circuit.", "--quick", rare=True)] = False
    dtype: Annotated[
        str, flag("Number format of the model: auto (as stored), float32, bfloat16, float16.", rare=True)
    ] = "auto"
    device: Annotated[
        Any, flag("cpu, cuda, mps, or several: cuda:0,cuda:1. auto: a GPU where there is one.", rare=True)
    ] = "auto"


class Explainer(Ask):
    """Who explains the circuit of a study beside the built-in scientist."""

    scientist: Annotated[
        str | None,
        flag(
            "Who explains beside the built-in scientist: hyve, which --backbone alone means as well, hybrid (built in, "
            "then the language model for the rest), or your own as package.module:function.",
            method_of=("study af1",),
        ),
    ] = None


class RatedBy(OptionRecord):
    """Against which roles explanations are rated, and by whom."""

    roles: Annotated[
        str | Path | None, flag("Reference roles to rate against: CSV (component, role) or a JSON object.")
    ] = None
    ratings: Annotated[
        str | Path | None, flag("Scores by at least three people: rating-sheet.csv of the run, filled in.")
    ] = None
    judge: Annotated[
        Sequence[str], flag("A language model that rates the roles; give it twice for two judges.", "--judge")
    ] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "judge", tuple(self.judge or ()))  # a flag that is not given is None


class Cells(OptionRecord):
    """Which models are surveyed, on which behaviours."""

    models: Annotated[
        Sequence[str],
        flag("Natural models: smollm2-135m, directories, GGUF files, hub ids.", words=True, metavar="MODEL..."),
    ] = ()
    behaviours: Annotated[
        Sequence[str], flag("A behaviour by name or file; give it once for each.", "--behaviour", "-b")
    ] = ()


class SurveyOptions(OptionRecord):
    """What decides the cells of a survey."""

    kind: Annotated[
        str, flag("What components are replaced by: zero, mean, resample or value-bias.", "--kind", "-k")
    ] = "resample"
    n: Annotated[int, flag("Prompts of a sweep.", least=1)] = 32
    top: Annotated[int, flag("Components that two halves of the prompts compare.", least=1)] = 10
    discover: Annotated[
        str | None, flag("Also find a circuit, with checks: sweep, eap, eap-ig, relp, acdc, bandit or rl.")
    ] = None
    metric: Annotated[
        Any,
        flag(
            "What is measured of the answers: logit-difference, probability, probability-difference, log-probability, "
            "loss or kl. Default: logit-difference, or log-probability without wrong answers."
        ),
    ] = None
    seed: Annotated[int, flag("Seed of the prompts, the halves and the bootstrap.")] = 0
    dtype: Annotated[
        str, flag("Number format of the models: auto (as stored), float32, bfloat16, float16.", rare=True)
    ] = "auto"
    device: Annotated[
        str, flag("cpu, cuda, mps, or several: cuda:0,cuda:1. auto: a GPU where there is one.", rare=True)
    ] = "auto"


class NaturalOptions(OptionRecord):
    """Which explanations `bench natural` compares, and how they are graded."""

    behaviours: Annotated[
        Sequence[str],
        flag(
            "A behaviour by name or file, for models that are named; give it once for each. Default: induction, ioi, "
            "greater-than, capitals; of arithmetic its own.",
            "--behaviour",
            "-b",
        ),
    ] = ()
    scientists: Annotated[
        Sequence[str],
        flag(
            "Who explains; give it once for each: builtin, scripted (an agent that follows a script), null (the "
            "components of builtin with random programs), command:PROGRAM or package.module:function. Default: the "
            "first three.",
            "--scientist",
        ),
    ] = ()
    n: Annotated[int, flag("Prompts that grade an explanation; none of them has been seen by it.", least=8)] = 32
    claims: Annotated[
        int, flag("The most prompts that a claim of the built-in scientist draws.", least=4, rare=True)
    ] = 32
    top: Annotated[
        int | None, flag("The most components that the built-in scientist explains.", least=1, rare=True)
    ] = None
    seed: Annotated[int, flag("Seed of all prompts and of the null.")] = 0
    device: Annotated[
        str, flag("cpu, cuda, mps, or several: cuda:0,cuda:1. auto: a GPU where there is one.", rare=True)
    ] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("behaviours", "scientists"):  # a flag that is not given is None
            object.__setattr__(self, name, tuple(getattr(self, name) or ()))


class Filling(OptionRecord):
    """What the runs that fill tables of a paper may use."""

    backbone: Annotated[
        str | None, flag("The language model, as PROVIDER:MODEL, such as openai:gpt-5.4.", metavar="P:M")
    ] = None
    judges: Annotated[Sequence[str], flag("With --run: a language model that judges; repeatable.", "--judge")] = ()
    model: Annotated[str | None, flag("With --run: the natural model. Default: arithmetic (study), smollm2-135m.")] = (
        None
    )
    limit: Annotated[
        int | None, flag("With --run: only the first N circuits, or functions of each category.", least=1)
    ] = None
    max_cost: Annotated[float | None, flag("Spend at most this many dollars, over all jobs and resumptions.")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "judges", tuple(self.judges or ()))


class LeagueOptions(OptionRecord):
    """What a league is made of."""

    seed: Annotated[int | None, flag("Seed of the tasks, part of the key. Default: a secret one is drawn.")] = None
    circuits: Annotated[int, flag("Circuits to train.", least=1)] = 30
    functions: Annotated[int, flag("Black-box functions of each category.", least=0)] = 0
    depth: Annotated[int, flag("Longest chain of operators of a program, 1 to 5.")] = 3
    specimens: Annotated[str | Path | None, flag("Take circuits that `vesalius train` made in this directory.")] = None
    circuits_given: Annotated[
        bool, flag("Do not say which components make up a circuit.", "--hide-circuits", off="hide_circuits")
    ] = True
    key_out: Annotated[
        str | Path | None, flag("Write the key here, unsealed, instead; a place outside the league.")
    ] = None


class Entrant(OptionRecord):
    """Who submits to a league: a scientist, explanations made elsewhere, or a discovery method."""

    scientist: Annotated[
        str | None, flag("builtin, hyve, package.module:function, or a null: empty, by-kind, always-MAPPER.")
    ] = None
    backbone: Annotated[
        str | None, flag("The language model, as PROVIDER:MODEL, such as openai:gpt-5.4.", metavar="P:M")
    ] = None
    explanations: Annotated[
        str | Path | None, flag("A directory of explanations instead: c01.json, or c01/explanation.json.")
    ] = None
    method: Annotated[str | None, flag("A discovery method instead: sweep, eap, eap-ig, relp, acdc.")] = None
    interpreter: Annotated[
        str | None, flag("Interpreter of the functions, which the scorer runs: builtin, module:function.")
    ] = None
    name: Annotated[str | None, flag("Name of the submission. Default: who made it.")] = None
    seed: Annotated[int, flag("Seed of the scientist or method.")] = 0
    n: Annotated[int, flag("Prompts of a discovery method.", least=2)] = 32


#: The prompts that folders of a MIB submission are scored on.
MIB_SCORED = Draw(n=32, split="validation")


class MibRows(OptionRecord):
    """The rows of MIB's causal variable track that a variable is read from, and the program that says what it is."""

    rows: Annotated[
        str | Path | None,
        flag("Rows of MIB's datasets: a file, or the directory of a dataset. Default: pairs of --behaviour."),
    ] = None
    task: Annotated[
        str | None,
        flag("The task of --rows: arithmetic, 4_answer_MCQA, ARC_easy, or a name of yours. Default: the folder's."),
    ] = None
    algorithm: Annotated[
        str | Path | None,
        flag("A program file (.py) whose functions are the variables. Default: that of the task or the behaviour."),
    ] = None


class MibTrained(OptionRecord):
    """Which variable is placed, where it is looked for, and on how many held-out prompts it is graded."""

    variable: Annotated[str, flag("The variable: ones_carry, answer_pointer, or a function of the program.")] = "answer"
    at: Annotated[
        Sequence[str],
        flag(
            "A place instead of the best layer and position: resid19@last, L19H2@end. May be given several times.",
            "--at",
        ),
    ] = ()
    directions: Annotated[
        int, flag("Find so many directions (DAS) within each place; 0: the whole place.", least=0)
    ] = 0
    held_out: Annotated[int, flag("Held-out prompts on which the folder is scored.", least=1)] = 64


#: The prompts whose pairs place a variable of a MIB submission, or score one.
MIB_PAIRS = Sample(n=64)
