"""The server for other agents."""

from typing import Annotated

import typer

from vesalius.cli.options import JsonOption
from vesalius.errors import BadInput
from vesalius.options import OptionRecord, flag


class Served(OptionRecord):
    """How clients reach the server."""

    http: Annotated[bool, flag("Streamable HTTP on loopback, not stdin and stdout.", "--http")] = False
    port: Annotated[int, flag("With --http: port; 0: any that is free.", least=0, most=65535)] = 0
    clients: Annotated[
        int,
        flag("With --http: clients with a secret and a budget each; 1: all share one.", least=1, most=1_000),
    ] = 1
    list_clients: Annotated[bool, flag("Print the clients of --run over HTTP and exit.", "--list-clients")] = False
    revoke: Annotated[
        str | None, flag("Give this client of --run a new secret and exit; the old one is worth nothing.")
    ] = None


class Limits(OptionRecord):
    """What a client may use."""

    forwards: Annotated[int, flag("Forward passes of one prompt, per connection.", least=1)] = 2_000_000
    executions: Annotated[int, flag("Executions of code, per connection.", least=1)] = 100
    seconds: Annotated[int, flag("Seconds of computing, per connection.", least=1)] = 1_800
    memory: Annotated[int, flag("Megabytes that a call may use.", least=1)] = 2_048
    queries: Annotated[int, flag("Inputs of one black-box function, per connection.", least=1)] = 400


def mcp(
    *,
    served: Served,
    run: Annotated[
        str | None,
        typer.Option(help="Run directory of the ledger; the same one continues. Default: one under vesalius-runs."),
    ] = None,
    root: Annotated[str, typer.Option(help="The only directory from which models and prompts are read by path.")] = ".",
    limits: Limits,
    hub: Annotated[bool, typer.Option("--hub", help="Let agents name models of the hub to download.")] = False,
    unsafe_sandbox: Annotated[
        bool, typer.Option("--unsafe-sandbox", help="Run code even where it cannot be contained.")
    ] = False,
    list_tools: Annotated[
        bool, typer.Option("--list-tools", help="Print the tools with their tokens and exit.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Serve experiments as tools of the Model Context Protocol, under a budget, for agents of other programs.

    The client has a budget, counted down in every result; clients over HTTP share it unless --clients gives each one.
    Over HTTP every request needs the secret of a client: they are in the run directory, in a file for you alone.
    Every call is on the disk before it is answered, and the same --run continues: budgets, submissions and results are
    read back. No tool reads the answer key: an explanation is submitted once, and then graded.

    Example: vesalius mcp --list-tools
    """
    try:
        import mcp as sdk  # noqa: F401
    except ModuleNotFoundError:
        raise BadInput("the server needs the package mcp; run: pip install 'vesalius[mcp]'") from None
    from vesalius.cli.console import print_json, print_line

    if list_tools:
        from vesalius_agents.mcp.start import CHARACTERS_PER_TOKEN, listed_tools

        tools = listed_tools()
        total = sum(tool.tokens for tool in tools)
        if json:
            return print_json(
                {"tools": [{"name": one.name, "tokens": one.tokens} for one in tools], "tokens": total}
                | {"characters_per_token": CHARACTERS_PER_TOKEN}
            )
        for tool in tools:
            print_line(f"{tool.tokens:>6}  {tool.name:<20} {tool.description}")
        return print_line(
            f"{total:>6}  tokens for all {len(tools)} tools, estimated at {CHARACTERS_PER_TOKEN} characters each"
        )
    if served.list_clients or served.revoke is not None:
        return _manage(served, run, as_json=json)
    if json:
        raise BadInput("--json is for --list-tools and --list-clients; the server prints nothing but its protocol")
    from pathlib import Path

    from vesalius_agents.mcp.desk import Options
    from vesalius_agents.mcp.start import new_run, serve_http, serve_stdio
    from vesalius_session.budget import Budget

    budget = Budget(**limits.values() | {"memory": limits.memory << 20})
    options = Options(Path(root), budget, hub=hub, unsafe_sandbox=unsafe_sandbox, clients=served.clients)
    place = new_run() if run is None else Path(run)
    if served.http:
        return serve_http(place, options, port=served.port, say=print_line)
    if served.port or served.clients > 1:
        raise BadInput(f"--{'port' if served.port else 'clients'} is for --http; add it")
    return serve_stdio(place, options)


def _manage(served: Served, run: str | None, *, as_json: bool) -> None:
    """List the clients of a run, or revoke the secret of one."""
    from pathlib import Path

    from vesalius.cli.console import print_json, print_line
    from vesalius_agents.mcp.start import listed_clients, revoke_client

    if run is None:
        raise BadInput("--list-clients and --revoke are about one run; name it with --run")
    if served.revoke is not None:
        place = revoke_client(Path(run), served.revoke)
        return print_line(f"client {served.revoke} has a new secret, in {place}; the old one is worth nothing")
    clients = listed_clients(Path(run))
    if as_json:
        return print_json({"clients": [vars(one) for one in clients]})
    for one in clients:
        print_line(f"{one.name:>6}  {one.calls} calls{f', the last at {one.last}' if one.last else ''}")
    return None
