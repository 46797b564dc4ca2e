"""What a package beside Vesalius adds: a kind of document, the verb that makes it, and a command that prints it.

Only light imports stand at the top: the command is imported whenever `vesalius` starts.
"""

from typing import Annotated, Any

import typer

from vesalius.documents.base import ResultDocument
from vesalius.documents.view import Answer, Sheet, View


class ModelShape(ResultDocument, kind="model_shape"):
    """How many layers, heads and components a model has: written as `model_shape.json`."""

    FILE = "model_shape.json"

    specimen: str
    layers: int
    heads: int
    components: int

    def view(self) -> View:
        """One line and one table."""
        answer = Answer(f"{self.specimen}: {self.layers} layers, {self.heads} heads, {self.components} components")
        columns = ("layers", "heads", "components")
        return View("shape of a model", answer, (Sheet(columns, ((self.layers, self.heads, self.components),)),))


def model_shape(specimen: Any) -> ModelShape:
    """The shape of a model: `ves.model_shape("3")`."""
    from vesalius import api

    loaded = api.load(specimen) if isinstance(specimen, str) else specimen
    config = loaded.model.config
    return ModelShape(
        specimen=loaded.name, layers=config.n_layers, heads=config.n_heads, components=len(loaded.model.components)
    )


def command(
    specimen: Annotated[str, typer.Argument(help="A specimen or a model.")],
    out: Annotated[str | None, typer.Option(help="Directory for model_shape.json.")] = None,
) -> None:
    """Print how many layers and heads a model has.

    Example: vesalius model-shape 3
    """
    shape = model_shape(specimen)
    if out is not None:
        shape.save(out)
    typer.echo(str(shape))
