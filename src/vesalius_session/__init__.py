"""One session in which somebody else proposes and the engine decides: claims, programs, code within a budget.

HyVE's stages, the tools for other agents and a command that speaks JSON lines (`command`) are faces of a `Session`.
`proposals` are programs and variables of a natural model, tried on prompts that had no part in them; `improving` lets
a search propose them.
"""
