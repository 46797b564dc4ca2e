r"""A scripted language model for the functions benchmark: it asks once, looks at the outputs, and answers.

    vesalius bench functions --category numeric --count 5 --interpreter aia \
        --backbone scripted:examples/functions_aia.py

It works with aia, milan and aia+milan, in every category, and as --evaluator too. Its ideas are few (a straight line;
four operations on texts; the words with the highest scores), so its figures say nothing about language models: it shows
what a model is told and in which form it answers, and lets the whole benchmark run without a key. It decides by the
conversation alone, so a run that was killed and is run again hears the same.
"""

import json
import re

PAIR = re.compile(r"^f\((.*)\) = (.*)$", re.MULTILINE)
WORDS = [
    "apple",
    "Paris",
    "doctor",
    "violin",
    "piano",
    "winter",
    "tiger",
    "France",
    "ruby",
    "Shakespeare",
    "Nile",
    "Texas",
]
TEXTS = ["Hello World", "abc", "Level 42", "banana split", "x", "Don't panic!"]
OPERATIONS = {
    "reverses the text": "x[::-1]",
    "turns the text to capitals": "x.upper()",
    "turns the text to small letters": "x.lower()",
    "removes the blanks": '"".join(x.split())',
    "gives the text back as it is": "x",
}


def reply(request):
    """What the model says next."""
    if request.label.startswith("unit test"):
        return evaluated(request.messages[-1].text)
    task = request.messages[1].text
    heard = "\n".join(message.text for message in request.messages if message.role == "user")
    pairs = [(read(given), read(output)) for given, output in PAIR.findall(heard)]
    may_ask = "ASK" in request.messages[0].text
    asked = any(message.role == "assistant" for message in request.messages)
    if may_ask and not asked:
        return f"I try a first set of inputs.\nASK {json.dumps(questions(task))}"
    return answer(task, pairs)


def questions(task):
    """A first set of inputs for a task."""
    if "x is a number" in task:
        return [-120, -64.5, -10, -1, 0, 0.5, 1, 10, 64.5, 120]
    return TEXTS if "x is a text" in task else WORDS


def answer(task, pairs):
    """The answer that a few simple ideas allow."""
    if "x is a number" in task:
        return straight_line([(x, y) for x, y in pairs if isinstance(x, (int, float)) and isinstance(y, (int, float))])
    if "x is a text" in task:
        return operation([(x, y) for x, y in pairs if isinstance(x, str) and isinstance(y, str)])
    if "between 0 and 1" in task:
        scored = sorted(((y, x) for x, y in pairs if isinstance(y, (int, float))), reverse=True)
        return f"[DESCRIPTION]: It answers to words such as {', '.join(str(x) for _, x in scored[:2])}."
    known = [f"{x} to {y}" for x, y in pairs if y not in ("undefined", None)]
    return f"[DESCRIPTION]: It leads from {', '.join(known[:3]) or 'nothing I tried'}.\n[DOMAIN]: Not known."


def straight_line(pairs):
    """The line through the outermost points."""
    pairs = sorted(pairs)
    (x0, y0), (x1, y1) = (pairs[0], pairs[-1]) if len(pairs) > 1 else ((0, 0), (1, 0))
    slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
    code = f"```python\ndef f(x):\n    return {slope!r} * (x - {x0!r}) + {y0!r}\n```"
    return f"[DESCRIPTION]: A straight line of slope {slope:.3g}.\n[DOMAIN]: The same everywhere.\n[CODE]:\n{code}"


def operation(pairs):
    """The operation that explains most outputs."""

    def explained(code):
        return sum(eval(code, {"x": x}) == y for x, y in pairs)

    words, code = max(OPERATIONS.items(), key=lambda item: explained(item[1]))
    return f"[DESCRIPTION]: It {words}.\n[CODE]:\n```python\ndef f(x):\n    return {code}\n```"


def evaluated(blocks):
    """The example that shares most words with the description."""
    description, *examples = re.findall(r"^<<<(?!END)[^>]*>>>\n(.*?)\n<<<END", blocks, re.MULTILINE | re.DOTALL)
    said = set(re.findall(r"\w{3,}", description.lower()))
    shared = [len(said & set(re.findall(r"\w{3,}", example.lower()))) for example in examples]
    return json.dumps({"example": shared.index(max(shared)) + 1})


def read(text):
    """A value from its line; what is no JSON stays text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
