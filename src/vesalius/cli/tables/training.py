"""Trained specimens and generated tasks."""

from vesalius.cli.console import print_line, stdout
from vesalius.documents.training import GeneratedTasks, TrainedSpecimen, TrainedSpecimens


def print_training(trained: TrainedSpecimen | TrainedSpecimens, directory: str) -> None:
    """What was trained and whether it was accepted."""
    if isinstance(trained, TrainedSpecimens):
        return _print_many(trained, directory)
    effort = f"{trained.attempts} tries, {trained.params} weights, {trained.seconds:.1f} s"
    stdout.print(f"[bold]{trained.name}[/bold]: accepted after {effort}")
    for name, value in trained.gate.items():
        stdout.print(f"  {name.replace('_', ' ')}: {value:.4f}")
    return print_line(f"specimen: {trained.directory}")


def _print_many(trained: TrainedSpecimens, directory: str) -> None:
    for row in trained.specimens:
        if not row.accepted:
            print_line(f"{row.name}: not accepted: {'; '.join(row.shortfalls or ())}")
    print_line(f"{trained.accepted} of {trained.n} programs accepted; specimens under {directory}")


def print_tasks(generated: GeneratedTasks) -> None:
    """The tasks, and how to train the first."""
    for task in generated.tasks:
        print_line(f"{task.path}: {' '.join(task.components)}")
    first = generated.tasks[0]
    print_line(f"train one with: vesalius train {first.path} --out specimens/{first.name}")
