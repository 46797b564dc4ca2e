"""A program of anybody's as a scientist, found by its entry point as that of a plug-in is."""

from dataclasses import dataclass

from vesalius.errors import BadInput
from vesalius.explanations.scientists import COMMAND, Backbone, Explained, Studying, Task
from vesalius.json_lines import arguments_of
from vesalius.options.records import option


@dataclass(frozen=True)
class Command(Studying):
    """A program of anybody's that speaks JSON lines on stdin and stdout."""

    name = COMMAND
    meaning = "A program that asks for experiments in JSON lines."
    asks = "never"
    program: str = option("", "The command line that starts it.")

    def __post_init__(self) -> None:
        arguments_of(self.program)

    @property
    def label(self) -> str:
        """As it is written on the command line."""
        return f"{self.name}:{self.program}"

    def require_model(self, given: bool) -> None:
        """A command has a language model of its own, or none."""
        if given:
            raise BadInput("`backbone`: a command asks no language model of ours; leave it out")

    def explain(self, task: "Task", backbone: Backbone | None) -> "Explained":
        """Start the program and carry out what it asks for."""
        from vesalius.sandbox import Executions
        from vesalius_session.command import explain_by_command

        explanation = explain_by_command(
            self.program,
            task.specimen(),
            components=task.components,
            executions=Executions(task.executions, writable=task.executions_writable),
            seed=task.seed,
            n=self.n,
            top=self.top,
            force=task.force,
            sandbox_unsafe=task.sandbox_unsafe,
            timeout=task.timeout,
            grants=task.grants,
            log=task.programs,
        )
        return Explained(explanation.model_copy(update={"scientist": self.label}))
