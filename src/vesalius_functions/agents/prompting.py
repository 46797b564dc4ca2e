"""The prompts: templates in `templates/`, one per category inside one frame, filled with the limits of the run."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **values: object) -> str:
    """A prompt from its template."""
    return _environment().get_template(f"{template}.md").render(**values).strip()


@cache
def _environment() -> Environment:
    loader = PackageLoader("vesalius_functions.agents", "templates")
    # Prompts are plain text: escaping for HTML would change what the model reads.
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)
