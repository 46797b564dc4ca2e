"""A user's own prompts for a language model: a directory of text files with fields in braces and capitals, such as
{INPUT}. All other braces are text. Everything is checked before the first call: files that are missing, fields that
nothing stands for, and files without the fields that they are about.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from vesalius.errors import BadInput, choices

FIELD = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")
LONGEST = 100_000


def read_prompts(
    folder: str | Path, needed: Mapping[str, Sequence[str]], allowed: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """The texts of a directory by file. `needed` are the fields that a file must hold, `allowed` those that it may hold
    besides.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise BadInput(f"`prompts` {folder}: there is no such directory; give one that holds {choices(needed)}")
    if missing := [name for name in needed if not (place / name).is_file()]:
        raise BadInput(f"`prompts` {folder}: lacks {', '.join(missing)}; it needs all of {', '.join(needed)}")
    texts = {name: _text(place / name) for name in needed}
    for name, text in texts.items():
        _check(place / name, text, needed[name], {*needed[name], *allowed.get(name, ())})
    return texts


def digests(texts: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of every file, as it was read."""
    return {name: sha256(text.encode()).hexdigest() for name, text in texts.items()}


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its fields replaced; braces in what is put in are text."""
    return FIELD.sub(lambda found: values[found[1]], text).strip() + "\n"


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LONGEST:
            raise BadInput(f"{file}: is longer than {LONGEST:,} bytes; a prompt is shorter")
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{file}: is not UTF-8 text; save it as such") from None
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror}); give a readable file") from None


def _check(file: Path, text: str, needed: Sequence[str], known: Collection[str]) -> None:
    """Refuse fields that nothing is known to stand for, and a file without those that it is about."""
    held = FIELD.findall(text)
    if unknown := next((field for field in held if field not in known), None):
        may = f"it may hold {choices(sorted(known))}" if known else "it holds none"
        raise BadInput(f"{file}: {{{unknown}}} is not a field of this file; {may}")
    if missing := [field for field in needed if field not in held]:
        lacks = ", ".join(f"{{{field}}}" for field in missing)
        raise BadInput(f"{file}: lacks {lacks}, so the model would not be told; put it where the text belongs")
