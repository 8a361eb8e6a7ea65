"""MaskGit: how the transformer learns, and what it is asked for.

In training some of a picture's tokens are masked, from one to all of them, and the transformer has to find them. A
critic learns to tell what it found wrongly. A picture is made by `painting.py`. Super-resolution is given the tokens of
the picture in low resolution, the same way in training as in making.
"""

from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.engine.evaluating import eval_mode
from madrigal.engine.machine import computing_in_bf16
from madrigal.engine.pretrained import Pretrained
from madrigal.engine.randomness import seeds_of
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise
from madrigal.muse.context import Context, Lead
from madrigal.muse.grids import as_grid
from madrigal.muse.maskgit_config import MaskGitConfig, Size, as_size
from madrigal.muse.maskgit_transformer import MaskGitTransformer, SelfCritic, TokenCritic
from madrigal.muse.painting import Canvas, Critic, Painting, highest, paint
from madrigal.muse.pictures import to_pil
from madrigal.muse.schedules import SCHEDULES
from madrigal.muse.tokenised import Tokenised


class Outcome(NamedTuple):
    """The mean loss of finding masked tokens, logits [tokens, ids] of what they were, the truth; the critic's loss."""

    loss: Tensor
    logits: Tensor
    truth: Tensor
    critic: Tensor | None = None

    @property
    def tokens(self) -> int:
        """How many had to be found."""
        return len(self.truth)

    @property
    def accuracy(self) -> Tensor:
        """The share of them that was found."""
        best = self.logits.float().max(-1).indices  # four times as fast as argmax in 16 bits
        return (best == self.truth).float().mean()


class MaskGit(Tokenised, Pretrained):
    """Trains and samples a `transformer` over the tokens of a `vae`."""

    Config: ClassVar[type[MaskGitConfig]] = MaskGitConfig
    config: MaskGitConfig
    token_critic: TokenCritic | SelfCritic | None

    def __init__(
        self,
        image_size: int | Size,
        transformer: MaskGitTransformer,
        *,
        vae: Any = None,
        cond_vae: Any = None,
        token_critic: TokenCritic | None = None,
        **options: Any,
    ) -> None:
        super().__init__(vae, cond_vae)
        options = {"image_size": image_size, **options, "transformer": transformer.config}
        options["token_critic"] = None if token_critic is None else token_critic.config
        self.config = build_config(MaskGitConfig, options, "MaskGit")
        self.transformer = transformer
        self.token_critic = SelfCritic(transformer) if self.config.self_token_critic else token_critic
        self.check_vae()

    @classmethod
    def build(cls, config: MaskGitConfig, *, vae: Any = None, cond_vae: Any = None) -> Self:
        """With new weights."""
        options = {name: getattr(config, name) for name in MaskGitConfig.model_fields if name != "kind"}
        critic = options.pop("token_critic")
        options["transformer"] = MaskGitTransformer(config.transformer)
        return cls(**options, token_critic=None if critic is None else TokenCritic(critic), vae=vae, cond_vae=cond_vae)

    @classmethod
    def _rebuild(cls, config: Any, **options: Any) -> Self:
        return cls.build(config, **options)

    @property
    def device(self) -> torch.device:
        return self.transformer.device

    # Training.

    def forward(
        self,
        images_or_ids: Tensor,
        *,
        texts: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
        classes: Tensor | list[int] | None = None,
        cond_images: Tensor | None = None,
        cond_token_ids: Tensor | None = None,
        cond_drop_prob: float | None = None,
        train_only_generator: bool = False,
    ) -> Tensor:
        """The loss of images [batch, 3, height, width] or ids [batch, rows, columns]."""
        ids, low = self.tokenised(images_or_ids, cond_images=cond_images, cond_token_ids=cond_token_ids)
        given = {"texts": texts, "text_embeds": text_embeds, "text_mask": text_mask, "classes": classes}
        drop = self.config.cond_drop_prob if cond_drop_prob is None else cond_drop_prob
        outcome = self.outcome(ids, given, low, drop=drop, with_critic=not train_only_generator)
        if outcome.critic is None:
            return outcome.loss
        return outcome.loss + self.config.critic_loss_weight * outcome.critic

    def outcome(
        self,
        ids: Tensor,
        given: dict[str, Any],
        cond_ids: Tensor | None = None,
        *,
        drop: float = 0.0,
        shown_first: float | None = None,
        with_critic: bool = True,
    ) -> Outcome:
        """The losses of ids [batch, rows, columns] under what is `given` to `condition`.

        All chances are drawn from torch's generator. `drop` is the share of rows without their condition,
        `shown_first` the chance that a self-conditioned transformer sees a first try of its own.
        """
        net, context = self.transformer, self._dropped(self.transformer.condition(**given), drop)
        hidden, wanted = self.masked(ids)
        past = self._first_try(hidden, context, cond_ids, shown_first)
        embed = net.embed(hidden, context, cond_ids=cond_ids, past=past, wanted=wanted)
        logits, truth = net.to_out(embed), ids.flatten(1)[wanted]
        loss, logits = F.cross_entropy(logits.float(), truth), logits.detach()
        critic = self._critic_loss(ids, wanted, logits, given, cond_ids, drop) if with_critic else None
        return Outcome(loss, logits, truth, critic)

    def masked(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids [batch, rows, columns] with some of them masked, and which have to be found, [batch, tokens]."""
        rows, tokens = ids.shape[0], ids[0].numel()
        times = torch.rand(rows, device=ids.device)
        count = (SCHEDULES[self.config.noise_schedule](times) * tokens).round().long().clamp(min=1)
        wanted = highest(torch.rand(rows, tokens, device=ids.device), count)
        hidden = wanted
        if self.config.no_mask_token_prob > 0:
            hidden = wanted & (torch.rand(wanted.shape, device=ids.device) >= self.config.no_mask_token_prob)
        return ids.masked_fill(hidden.view(ids.shape), self.transformer.mask_id), wanted

    def _dropped(self, context: Context | None, drop: float) -> Context | None:
        return None if context is None else context.dropped(drop)

    def _first_try(
        self, hidden: Tensor, context: Context | None, cond_ids: Tensor | None, chance: float | None
    ) -> Tensor | None:
        if not self.transformer.config.self_cond:
            return None
        chance = self.config.self_cond_prob if chance is None else chance
        if float(torch.rand(())) >= chance:
            return None
        with torch.no_grad():
            return self.transformer.embed(hidden, context, cond_ids=cond_ids)

    def _critic_loss(
        self,
        ids: Tensor,
        wanted: Tensor,
        logits: Tensor,
        given: dict[str, Any],
        cond_ids: Tensor | None,
        drop: float,
    ) -> Tensor | None:
        """The critic sees ids of which the wanted ones were drawn from the logits, and tells which are not the true."""
        if self.token_critic is None:
            return None
        noise = -torch.empty_like(logits).exponential_().clamp_(min=torch.finfo(torch.float32).tiny).log()
        drawn = (logits / torch.rand(()).clamp(min=1e-3).to(logits.device) + noise).argmax(-1)
        seen = ids.flatten(1).masked_scatter(wanted, drawn)
        context = self._dropped(self.token_critic.condition(**given), drop)
        embed = self.token_critic.embed(seen.view(ids.shape), context, cond_ids=cond_ids)
        doubts: Tensor = self.token_critic.to_out(embed)[..., 0]
        return F.binary_cross_entropy_with_logits(doubts.float(), (seen != ids.flatten(1)).float())

    # Making pictures.

    def generate(
        self,
        texts: list[str] | None = None,
        *,
        return_ids: bool = False,
        return_pil_images: bool = False,
        **options: Any,
    ) -> Any:
        """Images [batch, 3, height, width], their ids, or PIL images; the options are those of `generate_ids`."""
        ids = self.generate_ids(texts, **options)
        if return_ids:
            return ids
        images = self.picture(ids)
        return to_pil(images) if return_pil_images else images

    def generate_ids(
        self,
        texts: list[str] | None = None,
        *,
        negative_texts: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
        negative_text_embeds: Tensor | None = None,
        classes: Tensor | list[int] | None = None,
        cond_images: Tensor | None = None,
        cond_token_ids: Tensor | None = None,
        fmap_size: int | Size | None = None,
        size: int | Size | None = None,
        ids: Tensor | None = None,
        made: Tensor | None = None,
        batch_size: int | None = None,
        seed: int | list[int] = 0,
        **options: Any,
    ) -> Tensor:
        """Ids [batch, rows, columns] of a picture for each text (or class, or as many as `batch_size`).

        `size` is (height, width) in pixels, `fmap_size` (rows, columns) in tokens. Of given `ids` those are made anew
        that are True in `made`. Row r of a batch with `seed` s is what it would be alone with s + r. The `options` are
        those of `Painting`.
        """
        painting = build_config(Painting, options, "generate")
        given = {"texts": texts, "text_embeds": text_embeds, "text_mask": text_mask, "classes": classes}
        negative = {"texts": negative_texts, "text_embeds": negative_text_embeds}
        counted = {**given, **{f"negative_{name}": value for name, value in negative.items()}, "ids": ids}
        rows = _rows(batch_size, {**counted, "cond_images": cond_images, "cond_token_ids": cond_token_ids})
        low = self._low(cond_images, cond_token_ids, size)
        shape = as_size(fmap_size) or (self.fmap(size) if ids is None else tuple(as_grid(ids).shape[1:]))
        canvas = self._canvas(rows, shape, ids, made, low)
        noise = RowNoise(seeds_of(seed, rows))
        with eval_mode(self), torch.no_grad(), computing_in_bf16(self.device.type, painting.bf16):
            critic = None
            if self.token_critic is not None and not painting.force_not_use_token_critic:
                critic = Critic(self.token_critic, self._lead(self.token_critic, given, negative, painting))
            return paint(
                self.transformer,
                canvas,
                self._lead(self.transformer, given, negative, painting),
                noise,
                mask_id=self.transformer.mask_id,
                painting=painting,
                schedule=SCHEDULES[self.config.noise_schedule],
                critic=critic,
            )

    def _low(self, images: Tensor | None, ids: Tensor | None, size: int | Size | None) -> Tensor | None:
        if not self.is_superres:
            return None
        if ids is not None and images is None:
            return as_grid(ids).to(self.device)
        if images is None or ids is not None:
            raise UserError("Super-resolution makes pictures larger: give either cond_images or cond_token_ids.")
        return self.low_tokens_of(images, size)

    def _canvas(
        self, rows: int, shape: tuple[int, ...], ids: Tensor | None, made: Tensor | None, low: Tensor | None
    ) -> Canvas:
        if (ids is None) != (made is None):
            raise UserError("Given ids come with `made`, which says which of them are to be made anew.")
        if ids is None or made is None:
            empty = torch.full((rows, *shape), self.transformer.mask_id, device=self.device)
            return Canvas(empty, torch.ones_like(empty, dtype=torch.bool), low)
        ids, made = as_grid(ids).to(self.device), as_grid(made).to(self.device).bool()
        if ids.shape != made.shape:
            raise UserError(f"Ids of the shape {list(ids.shape)} were given with a mask of {list(made.shape)}.")
        return Canvas(ids, made, low)

    def _lead(self, net: Any, given: dict[str, Any], negative: dict[str, Any], painting: Painting) -> Lead:
        """Of nothing given, nothing leads: a model that was trained with conditions makes pictures without one, too."""
        is_told, is_negative = (any(value is not None for value in values.values()) for values in (given, negative))
        if is_negative and not (is_told and self.config.transformer.is_conditioned):
            raise UserError("Without a text there is nothing to be led away from: leave out the negative one.")
        if not is_told:
            return Lead(None)
        against = net.condition(**negative) if is_negative else None
        return Lead(net.condition(**given), against, painting.cond_scale)


def _rows(batch_size: int | None, given: dict[str, Any]) -> int:
    """How many pictures are asked for: as many as there are of everything that is given."""
    counts = {"batch_size": batch_size} if batch_size else {}
    counts |= {name: len(value) for name, value in given.items() if value is not None}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise UserError(f"The numbers of what was given do not agree ({told}): give one of each for every picture.")
    return next(iter(counts.values()), 1)
