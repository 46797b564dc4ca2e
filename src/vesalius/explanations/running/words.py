"""The word of every head of a model, whatever it is used for: attention programs on plain text and on repeated random
tokens, by the rules that name the heads of an explanation.

Nothing of a behaviour is run. Programs are fitted to one half of the passages and graded on the other, and the random
tokens that grade are others. A head is a `program` where tokens say on one of the two where it looks; `position only`
where the mean pattern of each position does on both; else what it attends to `depends on context`.
"""

from vesalius.components import Component
from vesalius.documents.running import AttentionProgram
from vesalius.explanations.running.battery import samples
from vesalius.explanations.running.fitting import fit_programs, graded
from vesalius.intervene.engine import Cost
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.progress import Progress, silent

OTHERS = "others"


def attention_words(
    specimen: Specimen, *, progress: Progress = silent
) -> tuple[dict[Component, AttentionProgram], float]:
    """The program, the word and the figures of every head, and how many prompts were run. A vocabulary without text
    and without random tokens to repeat has none.
    """
    if isinstance(specimen.vocabulary, FiniteVocabulary):
        return {}, 0.0
    heads, cost = [part for part in specimen.model.components if part.is_head], Cost()

    def count(prompts: int) -> None:
        cost.rows += prompts

    fit, others = (samples(specimen, heads, None, grading=grading, cost=count) for grading in (False, True))
    if not fit:
        return {}, cost.rows
    programs = fit_programs(fit, heads, progress=progress)
    return graded(programs, fit, {OTHERS: others}, progress=progress), cost.rows
