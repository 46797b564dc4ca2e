"""Redact secrets from everything that is recorded.

Two sources: the values of environment variables that are named like secrets (also as base64 and percent-encoded), and
patterns of the keys that providers issue. Matches become `[secret]`, in keys and values alike.
"""

import base64
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

MARK = "[secret]"
#: Shorter values are more likely words than secrets, and redacting every "test" would ruin a record.
MIN_LENGTH = 8
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
PATTERNS = re.compile(
    r"""
      \bsk-[A-Za-z0-9_-]{12,}                                   # OpenAI, Anthropic, and many that follow them
    | \bAIza[A-Za-z0-9_-]{20,}                                  # Google
    | \b(?:hf|gsk|xai|pplx|r8|nvapi|ghp|gho|ghs|ghu)[_-][A-Za-z0-9_-]{16,}
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bya29\.[A-Za-z0-9_-]{16,}                                # Google access token
    | \bAKIA[A-Z0-9]{16}\b
    | \bxox[abprs]-[A-Za-z0-9-]{10,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}  # JSON web token
    | -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)                           # user:password in an address
    | (?i:(?<=bearer\ )|(?<=basic\ ))[A-Za-z0-9._~+/=-]{12,}    # Authorization headers
    | (?i:(?<=x-api-key:\ )|(?<=x-goog-api-key:\ ))\S{8,}
    | (?i:(?<=[?&]key=)|(?<=api_key=)|(?<=api-key=))[^\s&"']{8,}
    """,
    re.VERBOSE | re.DOTALL,
)


class Redactor:
    """Redacts secrets from text and from nested data."""

    def __init__(self, secrets: Iterable[str] = (), *, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        named = [value for name, value in variables.items() if SECRET_NAME.search(name)]
        values = {value.strip() for value in [*named, *secrets] if value and len(value.strip()) >= MIN_LENGTH}
        spellings = {spelling for value in values for spelling in _encodings(value)}
        longest_first = sorted(spellings, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if spellings else None

    def text(self, text: str) -> str:
        """The text without secrets."""
        redacted = self._known.sub(MARK, text) if self._known else text
        return PATTERNS.sub(MARK, redacted)

    def tree(self, data: Any) -> Any:
        """Nested dicts, lists and strings without secrets."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, dict):
            return {self.tree(name): self.tree(value) for name, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.tree(item) for item in data]
        return data


def _encodings(secret: str) -> set[str]:
    encoded = base64.b64encode(secret.encode()).decode()
    return {secret, quote(secret, safe=""), encoded, encoded.rstrip("=")}
