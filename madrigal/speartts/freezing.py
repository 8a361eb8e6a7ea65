"""What learns and what stays as it is, part by part.

Nothing here touches a semantic tokenizer: it is no part of the model, learns nothing and is in no optimizer.
"""

from torch import nn

from madrigal.layers.transformer import Transformer
from madrigal.speartts.config import Modality


class Freezing(nn.Module):
    """The parts of `TextToSemantic` and what may learn of them; layers are counted from 1, the lowest."""

    encoder: Transformer
    lower: Transformer
    upper: Transformer
    tables: nn.ModuleDict
    starts: nn.ParameterDict
    masks: nn.ParameterDict

    def unfreeze_all(self) -> None:
        """Everything learns."""
        self.requires_grad_(True)

    def freeze_encoder(self) -> None:
        """All layers of the encoder stay, and its norm."""
        self.encoder.requires_grad_(False)

    def freeze_encoder_below_layer(self, layer: int) -> None:
        """The layers 1 to `layer` of the encoder stay, the others learn."""
        self.encoder.requires_grad_(True)
        self.encoder.layers[:layer].requires_grad_(False)

    def freeze_encoder_above_layer(self, layer: int) -> None:
        """The layers over `layer` of the encoder stay, and its norm; the layers 1 to `layer` learn."""
        self.encoder.requires_grad_(False)
        self.encoder.layers[:layer].requires_grad_(True)

    def freeze_decoder(self) -> None:
        """All layers of the decoder stay, and its norm; the head at the early exit learns."""
        self.lower.requires_grad_(False)
        self.upper.requires_grad_(False)

    def freeze_speech_emb(self) -> None:
        """The vectors of semantic ids stay, for embedding and for logits."""
        self._freeze_table("speech")

    def freeze_text_emb(self) -> None:
        """The vectors of text ids stay, for embedding and for logits."""
        self._freeze_table("text")

    def _freeze_table(self, modality: Modality) -> None:
        self.tables[modality].requires_grad_(False)
        for vectors in (self.starts, self.masks):
            if modality in vectors:
                vectors[modality].requires_grad_(False)
