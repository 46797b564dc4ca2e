"""The options of black-box functions, declared once: which functions, and who interprets and tests them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from vesalius.errors import BadInput
from vesalius.options import OptionRecord, flag


class Drawn(OptionRecord):
    """Which functions of a category."""

    count: Annotated[
        int | None,
        flag("Only the first N; a longer draw begins with the same. Default: the whole suite (`sample`: 5).", least=1),
    ] = None
    seed: Annotated[int | None, flag("Seed of the draw. Default: 2309, the reported suite.", least=0)] = None
    mode: Annotated[
        str | None,
        flag("fixed, or published with the published faults. Default: published with --dataset, else fixed."),
    ] = None
    dataset: Annotated[str | Path | None, flag("A folder of the published dataset, instead of drawing functions.")] = (
        None
    )


class Functions(Drawn):
    """Which functions of a category, also by name."""

    ids: Annotated[
        str | Sequence[str | int] | None,
        flag("Only these functions, comma-separated: f00042,f00107 (or 42,107)."),
    ] = None


class Interpreting(OptionRecord):
    """Who interprets functions, by which means, and on what the answers are tested."""

    interpreter: Annotated[
        str,
        flag(
            "builtin, oracle (the ceiling), table (numeric), aia, milan, aia+milan, a plug-in, command:PROGRAM that "
            "speaks JSON lines, answers:DIR of `functions serve`, or package.module:function.",
            method_of=("bench functions",),
        ),
    ] = "builtin"
    backbone: Annotated[
        str | None, flag("The language model, as PROVIDER:MODEL, such as openai:gpt-5.4.", metavar="P:M")
    ] = None
    evaluator: Annotated[
        str | None, flag("A language model, or trained:DIR, that takes the unit tests of descriptions.", metavar="P:M")
    ] = None
    function_backbone: Annotated[
        str | None,
        flag(
            "A language model that answers entities and relations in place of word vectors and fact tables.",
            metavar="P:M",
        ),
    ] = None
    budget: Annotated[int | None, flag("Queries per function. Default: as many as the interpreter needs.", least=1)] = (
        None
    )
    white_box: Annotated[
        bool, flag("Give the interpreter the weights of numeric functions that are nets.", "--white-box")
    ] = False
    rounds: Annotated[int, flag("Commands a language model may send.", least=1, rare=True)] = 20
    system_prompt: Annotated[
        str | None,
        flag("With --mode published: gpt, or llama-2, which forbids invented outputs.", rare=True),
    ] = None
    prompts: Annotated[
        str | Path | None,
        flag("With --mode published: a directory of your own prompts, such as the published ones.", rare=True),
    ] = None
    grading_seed: Annotated[
        int | None,
        flag(
            "Grade on the test points of an earlier run. Default: drawn after the answers are written.",
            least=0,
            rare=True,
        ),
    ] = None


class Recipe(OptionRecord):
    """How an evaluator is trained."""

    forms: Annotated[
        str,
        flag(
            "How tests are put to the model: letters, single, likelihood, or several with commas; the best on the "
            "validation split is kept."
        ),
    ] = "letters,single,likelihood"
    rank: Annotated[int, flag("Rank of the adapters.", least=1)] = 8
    epochs: Annotated[int, flag("Passes over the training split.", least=1)] = 3
    rate: Annotated[float, flag("The largest learning rate.")] = 2e-4
    batch: Annotated[int, flag("Tests per step.", least=1)] = 32
    seed: Annotated[int, flag("Seed of the adapters and of the order of tests.", least=0)] = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise BadInput(f"`rate` {self.rate:g}: give a learning rate between 0 and 1, such as 2e-4")
