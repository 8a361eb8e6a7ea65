"""`export`: a trained model as a folder of its own."""

from pathlib import Path
from typing import Annotated

import typer

from madrigal.verbs.terminal import Overwrite


def export(
    run: Annotated[str, typer.Argument(help="A run or a checkpoint.")],
    target: Annotated[Path, typer.Argument(help="The folder to write.")],
    online: Annotated[bool, typer.Option("--online", help="The last weights, not their average.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a trained model as config.json and model.safetensors, for `from_pretrained`.

    Of a voicebox run all that speaks is written, with its voices, in 16 bits: name the folder with `say --run`. Of a
    musiclm run all that makes music is written, of a muse run all that makes pictures: name the folder with `generate`.

    Example: `madrigal export runs/codec codecs/mine`
    """
    from madrigal.voicebox.loading import export_voicebox, is_voicebox

    if is_voicebox(run):
        typer.echo(str(export_voicebox(run, target, averaged=not online, overwrite=overwrite)))
        return
    from madrigal.musiclm.loading import export_musiclm, is_musiclm

    if is_musiclm(run):
        typer.echo(str(export_musiclm(run, target, averaged=not online, overwrite=overwrite)))
        return
    from madrigal.engine.learned import recipe_of

    if recipe_of(Path(run)).get("system") == "muse":
        from madrigal.muse.loading import export_muse

        typer.echo(str(export_muse(run, target, averaged=not online, overwrite=overwrite)))
        return
    from madrigal.engine.exporting import check_target
    from madrigal.verbs.systems import model_class

    check_target(target, overwrite=overwrite)
    model = model_class(run).from_pretrained(run, averaged=not online)
    typer.echo(str(model.save_pretrained(target)))
