"""Hyper-connections start as the plain residual and learn to be more."""

import torch
from small_transformers import DIM

from madrigal.layers.hyper_connections import HyperConnection
from madrigal.layers.transformer import Transformer


def test_they_start_as_a_plain_residual() -> None:
    torch.manual_seed(0)
    plain = Transformer(DIM, 3, heads=2, dim_head=8)
    wide = Transformer(DIM, 3, heads=2, dim_head=8, residual_streams=3)
    missing = wide.load_state_dict(plain.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all(".connections." in name for name in missing.missing_keys)
    x = torch.randn(2, 5, DIM)
    torch.testing.assert_close(wide(x), plain(x), rtol=1e-4, atol=1e-5)


def test_what_is_read_mixed_and_written() -> None:
    connection = HyperConnection(DIM, 2, index=1)
    with torch.no_grad():
        connection.say.copy_(torch.tensor([[2.0, 0.0, 1.0, 3.0], [0.0, 1.0, 0.0, 5.0]]))
    x, out = torch.randn(1, 4, 2, DIM), torch.randn(1, 4, DIM)
    entry, leave = connection(x)
    torch.testing.assert_close(entry, 2 * x[:, :, 0])
    streams = leave(out)
    torch.testing.assert_close(streams[:, :, 0], x[:, :, 1] + 3 * out)
    torch.testing.assert_close(streams[:, :, 1], x[:, :, 0] + 5 * out)


def test_they_listen_to_the_normed_streams() -> None:
    connection = HyperConnection(DIM, 2, index=0)
    torch.nn.init.normal_(connection.to_say.weight)
    torch.nn.init.normal_(connection.norm.weight)
    x = torch.randn(3, 4, 2, DIM)
    torch.testing.assert_close(connection._heard(x), connection.to_say(connection.norm(x)), rtol=1e-4, atol=1e-5)


def test_layers_begin_with_different_streams() -> None:
    model = Transformer(DIM, 2, heads=2, dim_head=8, residual_streams=4)
    reads = [connection.say[:, 0].argmax().item() for layer in model.layers for connection in layer.connections]  # type: ignore[union-attr,operator]
    assert reads == [0, 1, 2, 3]
