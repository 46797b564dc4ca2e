"""Trained specimens and generated tasks."""

from typing import Any

from vesalius.cli.console import print_line, stdout


def print_training(document: dict[str, Any], directory: str) -> None:
    """What was trained and whether it was accepted."""
    if "specimens" in document:
        return _print_many(document, directory)
    effort = f"{document['attempts']} tries, {document['params']} weights, {document['seconds']:.1f} s"
    stdout.print(f"[bold]{document['name']}[/bold]: accepted after {effort}")
    for name, value in document.items():
        if isinstance(value, float) and name != "seconds":
            stdout.print(f"  {name.replace('_', ' ')}: {value:.4f}")
    return print_line(f"specimen: {document['directory']}")


def _print_many(document: dict[str, Any], directory: str) -> None:
    for row in document["specimens"]:
        if not row["accepted"]:
            print_line(f"{row['name']}: not accepted: {'; '.join(row['shortfalls'])}")
    print_line(f"{document['accepted']} of {document['n']} programs accepted; specimens under {directory}")


def print_tasks(document: dict[str, Any]) -> None:
    """The tasks, and how to train the first."""
    rows = document["tasks"]
    for row in rows:
        print_line(f"{row['path']}: {' '.join(row['components'])}")
    print_line(f"train one with: vesalius train {rows[0]['path']} --out specimens/{rows[0]['name']}")
