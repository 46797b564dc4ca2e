"""Claims of an explanation, decided again on the inputs of another seed."""

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from vesalius import api
from vesalius.errors import BadInput
from vesalius_workbench.circuits import Place, Results, subject
from vesalius_workbench.models import MOST_PROMPTS, Models


class RetestQuestion(BaseModel):
    """One claim, by its number among those about its component, and the seed of the inputs."""

    model_config = ConfigDict(extra="forbid")

    path: Place
    component: Annotated[str, Field(min_length=1, max_length=200)]
    claim: Annotated[int, Field(ge=1, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, le=2**31)] = 1


def routes(app: FastAPI, models: Models, results: Results) -> None:
    """The questions about claims."""

    @app.post("/api/retest")
    def retest(asked: RetestQuestion) -> Any:
        explanation = results.explanation(asked.path)
        n = explanation.request.options.get("n") if explanation.request else None
        if isinstance(n, int) and n > MOST_PROMPTS:
            raise BadInput(
                f"{asked.path!r:.80}: was tested on {n:,} prompts, and at most {MOST_PROMPTS} are drawn here; in a"
                f" terminal: vesalius retest DIR -c {asked.component} --claim {asked.claim} --seed {asked.seed}"
            )
        with models.turn():
            specimen = models.specimen(*subject(explanation))
            named = {"seed": asked.seed, "specimen": specimen, "progress": models.report}
            document = api.retest(explanation, asked.component, asked.claim, **named)
        return {"document": document.as_data(), "command": document.request.command_line()}
