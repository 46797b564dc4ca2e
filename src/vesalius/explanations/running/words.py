"""The word of every head of a model, whatever it is used for: attention programs on plain text and on repeated random
tokens, by the rules that name the heads of an explanation.

Nothing of a behaviour is run. Programs are fitted to one half of the passages and graded on the other, and the random
tokens that grade are others. A head is a `program` where rules that read tokens say, on one of the two, where it looks;
`position only` where the mean pattern of each position does on both; else what it attends to `depends on context`.
"""

from vesalius.components import Component
from vesalius.documents.running import AttentionProgram
from vesalius.explanations.atlas.text import passages
from vesalius.explanations.running.battery import RANDOM_ROWS, samples
from vesalius.explanations.running.fitting import fit_programs, graded
from vesalius.intervene.engine import Cost
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.progress import Progress, silent

OTHERS = "others"
#: Seconds of processor time that the fit and the grade of a head take, about.
OF_A_HEAD = 0.3


def prompts_of_words(specimen: Specimen) -> int:
    """How many prompts are run; none of a model with inputs of its own, or that looks ahead."""
    if isinstance(specimen.vocabulary, FiniteVocabulary) or not specimen.model.config.causal:
        return 0
    text = passages(specimen)
    return 2 * RANDOM_ROWS + (0 if text is None else len(text.batch))


def attention_words(
    specimen: Specimen, *, progress: Progress = silent
) -> tuple[dict[Component, AttentionProgram], float]:
    """The program, the word and the figures of every head, and how many prompts were run. Models with inputs of their
    own, or that look ahead, have none.
    """
    if not prompts_of_words(specimen):
        return {}, 0.0
    heads, cost = [part for part in specimen.model.components if part.is_head], Cost()

    def count(prompts: float) -> None:
        cost.rows += prompts

    fit, others = (samples(specimen, heads, None, grading=grading, cost=count) for grading in (False, True))
    programs = fit_programs(fit, heads, progress=progress)
    return graded(programs, fit, {OTHERS: others}, progress=progress), cost.rows
