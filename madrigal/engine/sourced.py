"""A trainer that opens the data of a recipe: recordings or pictures, which are prepared first where they are not."""

from pathlib import Path
from typing import Any

from madrigal.data.source import Source
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.trainer import Trainer


class SourceTrainer(Trainer):
    """Trains a model that has a `config` on what a `source` gives, on a dataset or on a loader."""

    def __init__(
        self,
        model: Any,
        *,
        plan: Plan,
        source: Source | None = None,
        results_folder: str | Path = "./results",
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            model,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not options.get("resume")),
            recipe=recipe or recorded(self.system, model.config, plan, source),
            **options,
        )

    def opened(self, source: Any, **how: Any) -> tuple[Any, Any]:
        """The training set of a source, and its validation set or None; `how` says where it is prepared."""
        raise NotImplementedError

    def _open(self, source: Source, run: Path, *, anew: bool) -> tuple[Any, Any]:
        return self.opened(
            source,
            prepared_in=run / "data",
            # A run that goes on keeps the files that it began with; the other ranks take what the main one found.
            anew=anew and self.is_main,
            say=tell if self.is_main else None,
        )
