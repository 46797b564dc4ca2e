"""Claims that are registered before their test."""

from pathlib import Path
from typing import Annotated

import typer

from vesalius import api
from vesalius.cli.console import output, print_json, print_line
from vesalius.cli.options import JsonOption

claims = typer.Typer(no_args_is_help=True, help="Register a claim before its test, run it, check that nothing changed.")

ClaimArgument = Annotated[str, typer.Argument(help="A file of `vesalius claims register`.", metavar="CLAIM.json")]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", help="Sign with this key, a file of `vesalius claims key`. Needs vesalius\\[sealing]."),
]
PublishedOption = Annotated[
    str | None, typer.Option("--digest", help="The digest that was published when the claim was registered.")
]
SignerOption = Annotated[str | None, typer.Option("--signer", help="The public key that must have signed.")]


@claims.command()
def register(
    file: Annotated[str, typer.Argument(help="JSON or TOML: specimen, behaviour, claim, prediction, seed, n.")],
    out: Annotated[str, typer.Option(help="The file to write; one that exists is not overwritten.")] = "claim.json",
    key: KeyOption = None,
    json: JsonOption = False,
) -> None:
    """Write hypothesis, prediction, test, digests of model and prompts, and code version before the test is run.

    FILE: {"specimen": "frac_prevs", "claim": {"kind": "necessary", "component": "L0_MLP"}, "prediction": "supported"}

    Example: vesalius claims register hypothesis.json --out claim.json
    """
    registration = api.register_claim(file, key=key, out=out)
    output(registration, as_json=json)
    if not json:
        print_line(
            f"written to {out}; publish the digest, or sign with --key, to show later that it came before the test"
        )
        print_line(f"test it: vesalius claims verify {out}")


@claims.command()
def verify(
    claim: ClaimArgument,
    digest: PublishedOption = None,
    signer: SignerOption = None,
    verdict: Annotated[
        str | None, typer.Option(help="Check this verdict, written earlier, instead of running the test.")
    ] = None,
    specimen: Annotated[str | None, typer.Option(help="Where the model is, if not where the claim says.")] = None,
    key: KeyOption = None,
    out: Annotated[str | None, typer.Option(help="The verdict to write. Default: CLAIM.verdict.json.")] = None,
    json: JsonOption = False,
) -> None:
    """Check a registered claim, run its test and write the verdict; the output says what is proven, and by what.

    PASS: the prediction came true (exit code 0). FAIL: it did not (1). ALTERED: a check failed (3). STRIPPED: a seal or
    a signature is missing (4). With --verdict nothing is run, so that PASS and FAIL need --signer, the key that you
    trust; else the verdict is UNSIGNED (5) or UNTRUSTED (6). A test that could not be run also ends with 1 and says
    why on stderr: scripts read `result` from --json, which prints nothing then.

    Example: vesalius claims verify claim.json
    """
    if verdict is not None:
        result = api.check_verdict(claim, verdict, published=digest, signer=signer)
    else:
        place = out or str(Path(claim).with_suffix(".verdict.json"))
        result = api.verify_claim(claim, specimen=specimen, published=digest, signer=signer, key=key, out=place)
    output(result, as_json=json)
    from vesalius_bench.claims.documents import EXIT_CODES

    raise typer.Exit(EXIT_CODES[result.result])


@claims.command()
def show(
    file: Annotated[str, typer.Argument(help="A registered claim or a verdict.")],
    digest: PublishedOption = None,
    signer: SignerOption = None,
    json: JsonOption = False,
) -> None:
    """Check the seal of a registered claim or of a verdict and print it with what is proven. Nothing is run.

    Exit codes as of `verify`; 0 for a registered claim whose seal holds.

    Example: vesalius claims show claim.verdict.json
    """
    document = api.show_claim(file, published=digest, signer=signer)
    output(document, as_json=json)
    from vesalius_bench.claims.documents import EXIT_CODES, ClaimVerdict
    from vesalius_bench.claims.verify import claim_proven

    if isinstance(document, ClaimVerdict):
        raise typer.Exit(EXIT_CODES[document.result])
    if not json:
        print_line(f"proven: {claim_proven(document, digest, signer).detail}")


@claims.command()
def key(
    out: Annotated[str, typer.Argument(help="The file to write; keep it to yourself.", metavar="KEY.pem")],
    json: JsonOption = False,
) -> None:
    """Make an Ed25519 key that signs claims and verdicts, and print its public half, to be published.

    Example: vesalius claims key laboratory.pem
    """
    public = api.signing_key(out)
    if json:
        return print_json({"key": out, "signer": public})
    return print_line(f"{out} written; public key {public}")
