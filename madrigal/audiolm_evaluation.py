"""Judging AudioLM: how well each stage foresees new voices, and whether continuations keep those of their prompts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from madrigal.audiolm.draws import drawn_with
from madrigal.audiolm.loading import find_stages, load_audiolm
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.pipeline import AudioLM
from madrigal.audiolm.semantic import semantic_stream
from madrigal.audiolm.source import TokenSource
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.whole_recipe import AudioLMRecipe
from madrigal.data.audio import read
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.source import manifest_of
from madrigal.data.tokens import PAD, TokenShards
from madrigal.data.turns import by_turns, in_turn
from madrigal.engine.learned import recipe_of
from madrigal.engine.machine import prepare_process
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.continuation import Continuation, ContinuationReport, StagePerplexity, evaluate_continuations
from madrigal.judge.continuation_page import write_continuations
from madrigal.judge.curves import read_curves, select
from madrigal.judge.language import Perplexity, baselines, offset_by_kind
from madrigal.judge.recognition import Recogniser, find_recogniser
from madrigal.judge.speakers import find_speaker_judges
from madrigal.judge.vosk import VoskRecogniser, find_second_recogniser
from madrigal.judge.words import find_word_list
from madrigal.layers.sampling import Sampling

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Tokens:
    """One recording: semantic ids [time] and codes [frames, quantizers]."""

    semantic: np.ndarray
    acoustic: np.ndarray


def tokens_of(model: AudioLM, manifest: Manifest, entries: Sequence[Entry]) -> Iterator[Tokens]:
    """The tokens of recordings that have no shards."""
    for entry in entries:
        path = manifest.resolve(entry)
        waves = [
            read(path, sample_rate=hz, channels=1).to(model.device)
            for hz in (model.wav2vec.target_sample_hz, model.codec.target_sample_hz)
        ]
        ids, _ = model.wav2vec.tokenize(waves[0])
        codes = model.codec.tokenize(waves[1][None])
        yield Tokens(ids[0].cpu().numpy(), codes[0].cpu().numpy())


def learned_from(runs: Sequence[Path]) -> tuple[Manifest, Path | None]:
    """The recordings that the stages were trained on, and where their tokens lie; None: each step made its own."""
    if len(runs) == 1:
        said = build_config(AudioLMRecipe, read_recipe(runs[0] / "recipe.yaml"), f"The recipe of {runs[0]}")
        return manifest_of(said.data.path, runs[0] / "data" / "train"), runs[0] / "tokens"
    coarse = find_stages(runs)["coarse"]
    source = build_config(TokenSource, recipe_of(coarse).get("data", {}), f"The recipe of {coarse}")
    return manifest_of(source.path, coarse / "data" / "train"), source.tokens


def training_tokens(folder: Path | None, model: AudioLM, manifest: Manifest) -> list[Tokens]:
    """The tokens of the recordings of `manifest`, from shards where there are any."""
    if folder is None:
        return list(tokens_of(model, manifest, list(manifest)))
    folder = folder / "train" if (folder / "train").is_dir() else folder
    semantic, acoustic = (TokenShards.find(folder, m.fingerprint(), manifest) for m in (model.wav2vec, model.codec))
    paths = [entry.path for entry in manifest if entry.path in semantic and entry.path in acoustic]
    return [Tokens(semantic.tokens(path), acoustic.tokens(path)) for path in paths]


class StageView:
    """What a stage and the counting baselines see of a recording: the same symbols, window by window."""

    def __init__(self, model: AudioLM, name: str) -> None:
        self.model, self.name = model, name
        self.stage: StageTransformer = getattr(model, f"{name}_transformer")
        coarse = model.coarse_transformer.num_quantizers
        fine = 0 if model.fine_transformer is None else model.fine_transformer.num_quantizers
        self.coarse = coarse
        # The frames of the fine stage's baselines hold the coarse codes too: they are given to it as well.
        self.columns = {"semantic": 1, "coarse": coarse, "fine": coarse + fine}[name]
        config: Any = self.stage.config
        size = config.num_semantic_tokens if name == "semantic" else config.codebook_size
        self.sizes = [size] * self.columns
        self.is_unique = getattr(config, "unique_consecutive", False)
        self.scored = np.arange(self.columns) >= (coarse if name == "fine" else 0)

    def windows(self, tokens: Tokens) -> Iterator[Tokens]:
        """The recording cut into windows of the length that the stage was trained on, and made unique where it was."""
        rate, per = self.model.codec.frame_rate, self.model.codec.frame_rate / self.model.wav2vec.frame_rate
        seconds = self.stage.config.window_seconds or len(tokens.acoustic) / rate
        size = max(1, round(seconds * rate / per))
        for start in range(0, len(tokens.semantic), size):
            ids = tokens.semantic[start : start + size]
            if self.is_unique:
                ids = ids[np.diff(ids, prepend=PAD) != 0]
            codes = tokens.acoustic[round(start * per) : round((start + size) * per)]
            if len(ids) > 1 and len(codes) > 1:
                yield Tokens(ids, codes)

    def symbols(self, window: Tokens) -> np.ndarray:
        """[time] the window as a counting model reads it."""
        if self.name == "semantic":
            return window.semantic
        codes = window.acoustic[:, : self.columns]
        kinds = np.broadcast_to(np.arange(self.columns), codes.shape)
        return offset_by_kind(codes, kinds, self.sizes).reshape(-1)

    def mask(self, window: Tokens) -> np.ndarray:
        """[time] which of these symbols count."""
        return np.resize(self.scored, len(self.symbols(window)))

    @torch.no_grad()
    def nll(self, window: Tokens) -> tuple[float, int]:
        """Summed over the stage's own symbols."""
        device = self.stage.device
        ids, codes = (torch.from_numpy(t).long()[None].to(device) for t in (window.semantic, window.acoustic))
        semantic = semantic_stream(ids, torch.tensor([ids.shape[1]], device=device))
        frames = torch.tensor([codes.shape[1]], device=device)
        coarse, fine = (
            Stream(part, frames) for part in (codes[..., : self.coarse], codes[..., self.coarse : self.columns])
        )
        streams = {"semantic": [semantic], "coarse": [semantic, coarse], "fine": [coarse, fine]}[self.name]
        sums, counts = self.stage.nll(streams, training=False)
        return float(sums[self.name]), counts[self.name]


def perplexities(
    model: AudioLM, train: Sequence[Tokens], test: Sequence[Tokens], *, order: int = 5, progress: Progress | None = None
) -> dict[str, tuple[Perplexity, dict[str, Perplexity]]]:
    """For every stage: the model's perplexity on `test`, beside everything that only counts `train`."""
    names = ["semantic", "coarse", *(["fine"] if model.fine_transformer is not None else [])]
    found: dict[str, tuple[Perplexity, dict[str, Perplexity]]] = {}
    for done, name in enumerate(names):
        view = StageView(model, name)
        known = [view.symbols(window) for tokens in train for window in view.windows(tokens)]
        asked = [window for tokens in test for window in view.windows(tokens)]
        own = Perplexity()
        for window in asked:
            own.add(*view.nll(window))
        others = baselines(
            known,
            [view.symbols(w) for w in asked],
            view.sizes if view.columns > 1 else view.sizes[0],
            order=order,
            frame=view.columns,
            scored=[view.mask(w) for w in asked],
        )
        found[name] = own, others
        if progress is not None:
            progress(done + 1, len(names))
    return found


def continuations(
    model: AudioLM,
    manifest: Manifest,
    *,
    count: int = 100,
    prompt_seconds: float = 3.0,
    seconds: float = 3.0,
    sampling: dict[str, Sampling] | None = None,
    seed: int = 0,
    batch: int = 10,
    progress: Progress | None = None,
) -> list[Continuation]:
    """Continuations of `count` prompts, taken from the manifest's recordings in turn, speaker by speaker."""
    rate = model.codec.target_sample_hz
    places = _places(manifest, count, prompt_seconds, seconds)
    size, more = round(prompt_seconds * rate), round(seconds * rate)
    made: list[Continuation] = []
    for first in range(0, len(places), batch):
        rows = places[first : first + batch]
        waves = [
            read(manifest.resolve(entry), start=round(at * rate), frames=size + more, sample_rate=rate, channels=1)
            for entry, at in rows
        ]
        out = model(
            prime_wave=[wave[0, :size] for wave in waves],
            prime_wave_input_sample_hz=rate,
            seconds=seconds,
            sampling=sampling,
            seed=list(range(seed + first, seed + first + len(rows))),
        )
        for (entry, at), wave, sound in zip(rows, waves, out, strict=True):
            made.append(
                Continuation(
                    name=f"{Path(entry.path).stem} from {at:g} s",
                    speaker=entry.speaker or "unknown",
                    rate=rate,
                    prompt=wave[:, :size].numpy(),
                    # The prompt as the codec gives it has whole frames: what is new is the end.
                    continuation=sound[None, -more:].cpu().numpy(),
                    original=wave[:, size:].numpy(),
                )
            )
        if progress is not None:
            progress(len(made), len(places))
    return made


def impostors_of(manifest: Manifest, rate: int, seconds: float) -> list[tuple[str, Any]]:
    """The beginning of one recording of every speaker: voices that a continuation should not be taken for."""
    first: dict[str, Entry] = {}
    for entry in manifest:
        if entry.speaker and entry.duration >= seconds:
            first.setdefault(entry.speaker, entry)
    frames = round(seconds * rate)
    return [
        (speaker, read(manifest.resolve(entry), frames=frames, sample_rate=rate, channels=1).numpy())
        for speaker, entry in first.items()
    ]


def evaluate_audiolm(
    runs: Sequence[Path],
    *,
    data: Path,
    out: Path | None = None,
    limit: int = 100,
    prompt_seconds: float = 3.0,
    seconds: float = 3.0,
    sampling: dict[str, Sampling] | None = None,
    seed: int = 0,
    recogniser: Path | None = None,
    device: str = "cpu",
    progress: Callable[..., None] | None = None,
) -> tuple[ContinuationReport, Path]:
    """Judge one AudioLM run, or the runs of its stages, on recordings of speakers that they have not heard.

    Writes the report to a folder, which by default is in the first of the runs.
    """
    prepare_process()
    model = load_audiolm(runs, device=device)
    folder = out or runs[0] / "evaluation"
    manifest = manifest_of(data, folder / "data", anew=True)
    trained_on, tokens = learned_from(runs)
    test = list(tokens_of(model, manifest, in_turn(manifest)[:limit]))
    found = perplexities(model, training_tokens(tokens, model, trained_on), test, progress=progress)
    made = continuations(
        model,
        manifest,
        count=limit,
        prompt_seconds=prompt_seconds,
        seconds=seconds,
        sampling=sampling,
        seed=seed,
        progress=progress,
    )
    heard_by, second = recogniser or find_recogniser(), find_second_recogniser()
    others = impostors_of(trained_on, model.codec.target_sample_hz, prompt_seconds)
    speakers = {item.speaker for item in made} | {speaker for speaker, _ in others}
    report = evaluate_continuations(
        made,
        # Manifests that name no speakers leave nobody to be mistaken for.
        judges=find_speaker_judges() if len(speakers) > 1 else [],
        recogniser=None if heard_by is None or not packages.available("recogniser") else Recogniser(heard_by),
        second_recogniser=None if second is None else VoskRecogniser(second),
        words=find_word_list(),
        impostors=others,
        stages=[StagePerplexity.of(name, own, others) for name, (own, others) in found.items()],
        title=f"{', '.join(run.name for run in runs)} on {len(made)} prompts",
        notes=[drawn_with(sampling, seed), f"What only counts has counted the recordings of {trained_on.root}."],
        examples=8,
        progress=progress,
    )
    stages = find_stages(runs)
    curves = [s for name in found for s in select(read_curves(stages[name]), (name, f"valid/ema/{name}"))]
    write_continuations(report, folder, curves)
    return report, folder


def _places(manifest: Manifest, count: int, prompt: float, seconds: float) -> list[tuple[Entry, float]]:
    """Where the prompts begin: a prompt apart, the speakers in turn, with `seconds` of the recording after each."""
    turns = by_turns(
        (entry.speaker, (entry, float(start)))
        for entry in manifest
        for start in np.arange(0.0, entry.duration - prompt - seconds, prompt)
    )
    if not turns:
        raise UserError(
            f"None of the recordings lasts {prompt + seconds:g} seconds: a prompt of {prompt:g}, and {seconds:g} to "
            "compare with. Give longer ones, or a shorter --prompt-seconds or --seconds."
        )
    return turns[:count]
