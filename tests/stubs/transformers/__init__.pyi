# Its own `__init__` names every module of hundreds of model families, and pyright reads them all for the six names that
# benchmarks and tests take from it: an eighth of what checking the whole repository costs.
from typing import Any

def __getattr__(name: str) -> Any: ...
