"""What makes pictures, told from its folder alone: nothing heavy is imported for it."""

from pathlib import Path

from madrigal.engine.exporting import config_of
from madrigal.engine.learned import recipe_of

SYSTEMS = ("muse", "maskgit", "token-critic")


def is_muse(name: str | Path) -> bool:
    """Whether `name` is a run that makes pictures, or an exported folder of one."""
    return recipe_of(Path(name)).get("system") in SYSTEMS or config_of(Path(name)).get("kind") == "muse"
