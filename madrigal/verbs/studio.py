"""`studio`: a page over runs and voices, and the same over HTTP for programs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from madrigal.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def studio(
    folder: Annotated[Path, typer.Argument(help="The folder that holds the runs.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 is all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8571,
    voice_runs: Annotated[
        list[Path] | None,
        typer.Option("--voice-run", help="A run or an exported folder of a voice to serve; the first is the default."),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", help="A file that holds the key that every request has to bring.")
    ] = None,
    no_key: Annotated[
        bool, typer.Option("--no-key", help="Serve other machines without a key: everybody who reaches it may use it.")
    ] = False,
    names: Annotated[
        list[str] | None, typer.Option("--name", help="A host name that the studio is reached by, beside localhost.")
    ] = None,
    control: Annotated[bool, typer.Option("--control", help="Let the page start, stop and resume trainings.")] = False,
    data_roots: Annotated[
        list[Path] | None, typer.Option("--data-root", help="A folder that data of such trainings may lie in.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Requests that are worked on at once.")] = 1,
    waiting: Annotated[int, typer.Option(min=0, help="Requests that may wait for their turn.")] = 32,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds that a request may take.")] = 300.0,
    grace: Annotated[float, typer.Option(min=0.0, help="Seconds to finish what is going on, when stopped.")] = 30.0,
    device: Annotated[str, typer.Option(help="Where models run, such as cuda or cuda:1.")] = "cpu",
    ray: Annotated[
        str | None,
        typer.Option("--ray", help="Serve by replicas on the Ray cluster at this address; local starts one here."),
    ] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="With --ray: how many; default: 1.")] = None,
    max_replicas: Annotated[
        int | None, typer.Option("--max-replicas", min=1, help="With --ray: grow up to so many under load.")
    ] = None,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object a request on the log.")] = False,
) -> None:
    """Open the studio: a page over the runs of a folder, and an interface that OpenAI's clients speak.

    It listens on this machine alone unless --host says otherwise. Stop it with Ctrl-C.

    Example: `madrigal studio runs`

    Example: `madrigal studio runs --host 0.0.0.0 --api-key-file key.txt --control --data-root corpora`
    """
    key = _key(api_key_file)
    if ray is None and (replicas is not None or max_replicas is not None):
        raise UserError("--replicas and --max-replicas are for --ray: name a cluster with it, or leave them out.")
    if host not in LOOPBACK and key is None and not no_key:
        raise UserError(
            f"{host} is reached from other machines: give a key with --api-key-file, or say --no-key if all "
            "of them may use it."
        )
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; make it, or name the folder that holds your runs.")
    for root in data_roots or []:
        if not root.is_dir():
            raise UserError(f"There is no folder {root}; check --data-root.")
    try:
        import fastapi
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError(f"The studio needs {error.name}: pip install 'madrigal[studio]'.") from error
    del fastapi
    from madrigal.studio.server import serve
    from madrigal.studio.settings import Limits, StudioSettings
    from madrigal.voicebox.loading import is_voicebox

    for run in voice_runs or []:
        if not is_voicebox(run):
            raise UserError(f"{run} is no run of a voicebox and no exported one; check --voice-run.")
    settings = StudioSettings(
        folder=folder,
        voice_runs=tuple(run.resolve() for run in voice_runs or []),
        api_key=key,
        names=tuple(name.lower() for name in (*(names or []), host)),
        control=control,
        data_roots=tuple(root.resolve() for root in data_roots or []),
        device=device,
        limits=Limits(workers=workers, waiting=waiting, timeout_seconds=timeout, grace_seconds=grace),
    )
    if host not in LOOPBACK and key is None:
        typer.echo(f"WARNING: {host} is reached from other machines, and there is no key.", err=True)
    if ray is None:
        serve(settings, host=host, port=port, json_logs=json_logs)
        return
    from madrigal.studio.fleet import serve_fleet

    many: dict[str, Any] = {"replicas": replicas or 1, "max_replicas": max_replicas}
    serve_fleet(settings, ray, host=host, port=port, json_logs=json_logs, api_key_file=api_key_file, **many)


def _key(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        key = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The key in {file} cannot be read; check --api-key-file.") from error
    if len(key) < 8 or not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(f"{file} should hold a key of 8 characters or more, without blanks, on one line.")
    return key
