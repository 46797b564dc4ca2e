"""`vesalius schema`: JSON Schema on stdout, without torch."""

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import Vesalius
from vesalius.documents.kinds import schema, schema_names


@pytest.mark.parametrize("name", schema_names())
def test_the_schema_of_a_document(vesalius: Vesalius, name: str) -> None:
    assert json.loads(vesalius("schema", name).out) == schema(name)


def test_without_a_name_the_documents_are_listed(vesalius: Vesalius) -> None:
    assert vesalius("schema").out.split() == schema_names()
    assert json.loads(vesalius("schema", "--json").out) == schema_names()


def test_an_unknown_document_is_refused_in_one_line(vesalius: Vesalius) -> None:
    got = vesalius("schema", "banana")
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith(
        "vesalius: document 'banana' does not exist; choose one of alignment, annotation, atlas, circuit, completion,"
    )


def test_a_schema_is_printed_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['vesalius', 'schema', 'discovery']\n"
        "from vesalius.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
