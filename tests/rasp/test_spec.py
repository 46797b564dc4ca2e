"""SPEC.py: good files, bad files, and the way back from a program to a file."""

import math

import pytest
import torch

from vesalius.errors import BadInput
from vesalius.rasp import Map, SequenceMap, compile_program, hist, indices, load_spec, random_inputs, roles_of, tokens
from vesalius.rasp.language import shift_by
from vesalius.rasp.text import render_spec

GOOD = """
from vesalius.rasp import Map, frac_prevs, tokens

vocab = ["a", "b", "x"]
max_len = 5
causal = True


def program():
    return frac_prevs(Map(lambda token: token == "x", tokens, name="is_x"))
"""


def written(tmp_path, text):
    path = tmp_path / "spec.py"
    path.write_text(text)
    return path


def test_a_good_file_gives_a_program(tmp_path):
    program = load_spec(written(tmp_path, GOOD))
    assert (program.name, program.max_len, program.causal, program.numerical) == ("spec", 5, True, True)
    trace = program.run(*program.encode([["x", "a"]]))
    assert program.decode(trace.output, trace.lengths) == [[1.0, 0.5]]
    named = load_spec(written(tmp_path, GOOD + 'name = "share"\ndescription = "the share of x"\n'))
    assert (named.name, named.description) == ("share", "the share of x")


CYCLE = "    x = Map(ord, tokens, name='x')\n    y = Map(str, hist(x), name='y')\n    x.inputs = (y,)\n    return y\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("vocab = ", "words = "), "does not define vocab; a spec defines program, vocab, max_len, causal"),
        (GOOD.replace("max_len = 5", "max_len = 'five'"), "max_len='five' is not a whole number from 1 to 1000"),
        (GOOD.replace("causal = True", "causal = 1"), "causal=1 is neither True nor False"),
        (
            GOOD.replace('["a", "b", "x"]', "7"),
            "vocab is of type int; give a list of tokens, whose order fixes their codes",
        ),
        (GOOD + "name = 3\n", "name must be a string, not int 3"),
        (GOOD + "program = 3\n", "program must be a function without arguments, not int 3"),
        (GOOD + "def program():\n    return 3\n", "program() must return a variable (Map, Aggregate, ...), not int 3"),
        (
            GOOD + "def program():\n    return undefined\n",
            "program() failed (NameError: name 'undefined' is not defined); it must return the output variable",
        ),
        (
            GOOD + "def program(x):\n    return x\n",
            "program() failed (TypeError: program() missing 1 required positional argument: 'x'); "
            "it must return the output variable",
        ),
        (
            GOOD + "1 / 0\n",
            "running the file failed (ZeroDivisionError: division by zero); fix it so that Python can run it",
        ),
        (
            GOOD + "class Own(Exception):\n    pass\nraise Own('mine')\n",
            "running the file failed (Own: mine); fix it so that Python can run it",
        ),
        (GOOD + "raise StopIteration\n", "running the file failed (StopIteration); fix it so that Python can run it"),
        (
            GOOD + "def program():\n    raise GeneratorExit('ended')\n",
            "program() failed (GeneratorExit: ended); it must return the output variable",
        ),
        (GOOD.replace('["a", "b", "x"]', "[1.0, float('nan')]"), "vocab holds nan; numbers among tokens are finite"),
        (
            GOOD
            + "from vesalius.rasp import Aggregate, Comparison, Map, Select, indices, tokens\n"
            + "def program():\n"
            + "    worth = Map(lambda t: float('inf') if t == 'x' else 1.0, tokens, name='worth')\n"
            + "    return Aggregate(Select(indices, indices, Comparison.LEQ), worth, numerical=True, name='mean')\n",
            "numerical Aggregate 'mean' computes with 'worth', which can be inf; numbers are finite",
        ),
        (GOOD + "raise SystemExit\n", "running the file failed (SystemExit); fix it so that Python can run it"),
        (
            GOOD + "from vesalius.rasp import Select, hist\ndef program():\n    return hist('a')\n",
            "Select: keys must be a variable (tokens, indices, Map, ...), not str 'a'",
        ),
        (
            GOOD + "from vesalius.rasp import hist\ndef program():\n" + CYCLE,
            "program has a cycle: ",
        ),
        (
            GOOD.replace('["a", "b", "x"]', "list(range(90))")
            + "from vesalius.rasp import SequenceMap, hist\n"
            + "def program():\n"
            + "    return SequenceMap(lambda a, b: a * 100 + b, tokens, Map(lambda t: t, tokens), name='p')\n",
            "SequenceMap 'p' takes more than 5,000 values; use a smaller vocabulary or a coarser function",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as caught:
        load_spec(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_unreadable_files_are_refused_in_one_line(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        load_spec(tmp_path / "missing.py")
    with pytest.raises(BadInput, match=r"running the file failed \(SyntaxError"):
        load_spec(written(tmp_path, "def program(:\n"))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="cannot be read"):
        load_spec(tmp_path / "binary.py")


def assert_identical(first, second):
    for attribute in ("vocab", "max_len", "causal", "numerical", "outputs", "name", "description"):
        assert getattr(first, attribute) == getattr(second, attribute), attribute
    for attribute in ("n_layers", "n_heads", "d_head", "d_model"):
        assert getattr(first, attribute) == getattr(second, attribute), attribute
    assert [(p.component, p.variables, p.kind) for p in first.components] == [
        (p.component, p.variables, p.kind) for p in second.components
    ]
    assert roles_of(first) == roles_of(second)
    base, source = random_inputs(first, 100, seed=0, min_length=1), random_inputs(first, 100, seed=1, min_length=1)
    runs = first.run(*base), second.run(*base)
    assert runs[0].values.keys() == runs[1].values.keys()
    assert all(torch.equal(runs[0].values[name], runs[1].values[name]) for name in runs[0].values)
    patched = torch.rand(100, len(first.components)) < 0.5
    assert torch.equal(first.interchange(base, source, patched), second.interchange(base, source, patched))


def test_a_rendered_program_loads_as_the_same_program(tmp_path):
    changed = SequenceMap(lambda a, b: None if a == b else (a, b), tokens, shift_by(1, tokens), name="class")
    together = SequenceMap(lambda n, i: math.inf if n > 2 else -n / (i + 1), hist(changed, name="2nd count"), indices)
    program = compile_program(together, ["it's", 'a "b"', "\n"], 4, causal=False, name="odd", description='says "hi"\n')
    assert_identical(program, load_spec(written(tmp_path, render_spec(program))))


def test_a_value_without_a_literal_is_refused():
    program = compile_program(Map(lambda t: frozenset(t), tokens), ["a", "b"], 3, causal=False)
    with pytest.raises(BadInput, match="cannot be written"):
        render_spec(program)
