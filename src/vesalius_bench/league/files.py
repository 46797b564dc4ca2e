"""The files of a league, which making, submitting and scoring share.

DIR/league.json           what is known without the key
DIR/specimens/c01 ...     the models, renamed and in random order
DIR/key.json              the key, sealed with a passphrase (or kept apart, in a file elsewhere)
DIR/submissions/NAME      submission.json, explanations/c01.json ... or circuits/c01.json ...
DIR/rows/NAME.json, .html the figures of a submission, and its page
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, quoted
from vesalius.files import read_json
from vesalius_bench.league.documents import LEAGUE_FILE, League
from vesalius_bench.sealing import open_text

KEY_NAME, SPECIMENS, SUBMISSIONS, ROWS = "key.json", "specimens", "submissions", "rows"
_LONGEST_NAME = 80


def read_league(league: str | Path) -> tuple[Path, League]:
    directory = Path(league)
    if not (directory / LEAGUE_FILE).is_file():
        raise BadInput(f"{league}: holds no {LEAGUE_FILE}; make a league with `vesalius league make --out DIR`")
    return directory, League.read(directory / LEAGUE_FILE)


def file_name(name: str) -> str:
    """The name of a submission as that of its directory and its row."""
    safe = "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in name)[:_LONGEST_NAME]
    if not safe or safe.startswith("."):
        raise BadInput(f"`name` {quoted(name, 40)}: begin it with a letter or a digit")
    return safe


def open_key(directory: Path, league: League, passphrase: str | None, key: str | Path | None) -> dict[str, Any]:
    """The key, opened with its passphrase or read from the file it was written to; refused if it is another."""
    if (passphrase is None) == (key is None):
        raise BadInput("the key: give a `passphrase_file`, or `key`, the file that it was written to")
    if passphrase is not None:
        if league.key != "sealed":
            raise BadInput(f"{directory}: its key is kept apart; give its file as `key`")
        text = open_text(read_json(directory / KEY_NAME), passphrase, source=directory / KEY_NAME)
    else:
        try:
            text = Path(str(key)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"`key` {key}: cannot be read ({error})") from None
    if text_digest(text) != league.key_sha256:
        raise BadInput(f"the key is not that of {directory}; league.json names another digest")
    return json.loads(text)


def read_passphrase(path: str | Path) -> str:
    """The first line of a passphrase file."""
    try:
        lines: Sequence[str] = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"`passphrase_file` {path}: cannot be read ({error})") from None
    if not lines or not lines[0].strip():
        raise BadInput(f"`passphrase_file` {path}: is empty; write the passphrase on its first line")
    return lines[0].strip()


def text_digest(text: str) -> str:
    """The digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def now() -> str:
    """The time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
