"""What a client is told at the start, and the prompts it can ask for."""

from typing import Any

from mcp.server.mcpserver import MCPServer

from vesalius.explanations.budget import Budget
from vesalius_agents.mcp.desk import Desk


def instructions(budget: Budget) -> str:
    """The standing instructions of the server."""
    return (
        "Vesalius finds, explains and checks the circuits inside transformer language models. Start with "
        "list_specimens and describe_specimen; find what matters with sweep or discover; test ideas with intervene, "
        "which_variable and check_claim, which decides by rule; submit_explanation once, then grade. Black-box "
        "functions: list_functions, query_function, submit_function, grade_function. "
        f"Budget of this connection: {budget.in_words()}. Every result says what is `left`; the same call again costs "
        "nothing. Long results have an address in `resource`. vesalius://docs/guide says more."
    )


def add_prompts(server: MCPServer[Any], desk: Desk) -> None:
    """Offer the prompts."""

    @server.prompt(description="Explain a benchmark circuit: observe, hypothesize, validate, classify (HyVE)")
    def hyve_protocol(specimen: str) -> str:
        return HYVE.format(specimen=specimen)

    @server.prompt(description="Find out what a black-box function does (FIND)")
    def find_protocol(function: str) -> str:
        return FIND.format(function=function, queries=desk.options.budget.queries)

    @server.prompt(description="Investigate how a natural model performs a behaviour")
    def investigate(model: str, behaviour: str) -> str:
        return INVESTIGATE.format(model=model, behaviour=behaviour)


HYVE = """Explain how the specimen {specimen} carries out its task. You are not told the task.

Call describe_specimen first. Then, for each component of the circuit, in the order of the layers:
1. Observe. Describe what it does without intervening: predict, attention, run_code. Write down what you saw.
2. Hypothesize. Say what variable it carries, precisely enough that an experiment could prove it wrong. which_variable \
scores several candidates at once.
3. Validate. Put claims to check_claim (the kinds are in vesalius://grammar/claims). A refuted hypothesis is replaced \
by another, at most three times; a claim that stays untested is not established.
Then, for all components together:
4. Classify. Give each component a tag: INDICATOR, AGGREGATOR, ROUTER, MAPPER or COMBINER.
5. Summarize. How information flows, and which task the model performs; where you can, one program with the variables \
that each component carries. Check it with a claim of kind computes before you submit it.
6. submit_explanation once, then grade. Report the figures as they are.

Watch `left` in every result, and stop experimenting before it runs out."""

FIND = """Find out what the function {function} does. You cannot see it; you can only ask it with query_function, at \
most {queries} inputs in all.

1. Ask inputs that differ in kind: small and large, common and rare, edges of the domain.
2. Write down a rule, then ask inputs that would prove it wrong. Outputs may be noisy, and there may be a part of the \
inputs where the function behaves differently: look for where it begins and ends.
3. When new inputs no longer surprise you, call submit_function once: the rule in words, where it does not hold \
(domain), and for numeric and string functions Python code that defines f(x).
4. Call grade_function and report the figures as they are."""

INVESTIGATE = """Investigate how the model {model} performs the behaviour {behaviour}.

1. describe_specimen with the behaviour: does the model perform it at all?
2. Which components matter: sweep (mean), then discover (eap-ig). Read the intervals, not the order alone.
3. For the strongest heads: attention on two or three prompts, lens for what they write, intervene for what changes \
without them, alone and together (backups hide single effects).
4. Put every sentence you want to keep to check_claim (kinds: vesalius://grammar/natural-claims): necessary, \
reads_role, moves_role, writes_answer, backs_up.
5. Report: what is supported, with its figures; what was refuted; what you could not decide. Do not report a claim \
that no experiment could have refuted."""
