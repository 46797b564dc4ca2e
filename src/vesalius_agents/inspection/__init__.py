"""Our benchmarks as tasks of inspect_ai, and our instruments as tools of its agents.

    inspect eval vesalius/circuits --model none/none                           our built-in scientist
    inspect eval vesalius/circuits --model openai/gpt-5.4 -T agent=true        inspect's react agent with our tools

| task                 | one sample                                     | graded                                       |
|----------------------|------------------------------------------------|----------------------------------------------|
| `vesalius/circuits`  | explain a circuit with a known answer          | tags and program, by the answer key          |
| `vesalius/discovery` | find a circuit with a known answer             | scores of components and edges, by the key   |
| `vesalius/functions` | say what a black-box function does             | code and description, by the function        |
| `vesalius/natural`   | explain a behaviour of a natural model         | claims, on fresh prompts                     |

The solver never opens the answer key; the scorer opens it when the solver is done. Errors of infrastructure are errors
of the sample, never scores.
"""

from vesalius_agents.inspection.circuit_task import circuits, explain_circuit, graded_circuit
from vesalius_agents.inspection.discovery_task import discovery, find_circuit, graded_discovery
from vesalius_agents.inspection.function_task import functions
from vesalius_agents.inspection.natural_task import explain_behaviour, graded_natural, natural

__all__ = [
    "circuits",
    "discovery",
    "explain_behaviour",
    "explain_circuit",
    "find_circuit",
    "functions",
    "graded_circuit",
    "graded_discovery",
    "graded_natural",
    "natural",
]
