"""The options of black-box functions, declared once: which functions, and who interprets and tests them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from vesalius.options import Record, flag


class Drawn(Record):
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


class Interpreting(Record):
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
        str | None, flag("A language model that takes the unit tests of descriptions.", metavar="P:M")
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
    grading_seed: Annotated[
        int | None,
        flag(
            "Grade on the test points of an earlier run. Default: drawn after the answers are written.",
            least=0,
            rare=True,
        ),
    ] = None
