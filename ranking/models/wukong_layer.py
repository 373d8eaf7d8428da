"""One layer of a Wukong stack (Zhang et al., "Wukong: Towards a Scaling Law for Large-Scale Recommendation", ICML 2024,
arXiv 2403.02545, section 3), with a context that is computed once and shared by many rows.

    X' = LN(concat(FMB(X), LCB(X)) + X)
    FMB(X) = reshape(MLP(LN(flatten(X P))))     P = X^T Y, the optimised low-rank factorisation machine X X^T Y
    LCB(X) = W_L X

A row's n tokens X meet m tokens U of a context that many rows share (a user's, for all candidates). The layer is that
of the paper over [X; U], of which only the rows of X go on:

    X^T Y   = X^T Y_x + (U^T Y_u)[row's context]
    W_L X   = W_x X + (W_u U)[row's context]
    W_1 f   = W_f f + (W_c u)[row's context]    the MLP's first layer sees the flattened context, u, too

What stands in parentheses is computed once per context, and the sums are in float32.

Shape legend: N rows, C contexts, n tokens of a row, m tokens of a context, D width of a token, k rank, M = k + n_L
mixed tokens, F width of the MLP.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class LayerContext(NamedTuple):
    """A layer's halves of each context: mixed_CMD is [Y_u W_u]^T U, hidden_CF is W_c u."""

    mixed_CMD: Tensor
    hidden_CF: Tensor

    def of_rows(self, index_N: Tensor) -> "LayerContext":
        """The context of each row."""
        return LayerContext(self.mixed_CMD.index_select(0, index_N), self.hidden_CF.index_select(0, index_N))


class WukongLayer(nn.Module):
    """Half of the tokens that come out are interactions (FMB), the other half linear mixtures (LCB)."""

    def __init__(self, *, num_tokens: int, dim: int, rank: int, width: int, num_context_tokens: int = 0) -> None:
        super().__init__()
        self.rank = rank
        num_linear = num_tokens // 2
        # Y and W_L side by side: both mix tokens, so that one product serves both.
        self.mix = nn.Linear(num_tokens, rank + num_linear, bias=False)
        self.fm_norm = nn.LayerNorm(num_tokens * rank)
        self.mlp_1 = nn.Linear(num_tokens * rank, width)
        self.mlp_2 = nn.Linear(width, (num_tokens - num_linear) * dim)
        self.norm = nn.LayerNorm(dim)
        if num_context_tokens:
            self.context_mix = nn.Linear(num_context_tokens, rank + num_linear, bias=False)
            self.context_mlp = nn.Linear(num_context_tokens * dim, width, bias=False)

    def context(self, tokens_CmD: Tensor) -> LayerContext:
        """What this layer needs of each context, once."""
        return LayerContext(_mixed(self.context_mix.weight, tokens_CmD), self.context_mlp(tokens_CmD.flatten(1)))

    def forward(self, tokens_NnD: Tensor, context: LayerContext | None = None) -> Tensor:
        """Return the next tokens [N, n, D]; `context` is that of each row, or one that all rows share."""
        # In place throughout: nobody needs what these tensors are before.
        mixed_NMD = _mixed(self.mix.weight, tokens_NnD)
        if context is not None:
            mixed_NMD = mixed_NMD.add_(context.mixed_CMD)
        low_rank_NkD, linear_NLD = mixed_NMD[:, : self.rank], mixed_NMD[:, self.rank :]
        interactions_Nnk = torch.bmm(tokens_NnD, low_rank_NkD.transpose(1, 2))
        hidden_NF = self.mlp_1(self.fm_norm(interactions_Nnk.flatten(1)))
        if context is not None:
            hidden_NF = hidden_NF.add_(context.hidden_CF)
        machine_NnD = self.mlp_2(hidden_NF.relu_()).unflatten(1, (-1, tokens_NnD.shape[2]))
        mixed: Tensor = self.norm(torch.cat((machine_NnD, linear_NLD), dim=1).add_(tokens_NnD))
        return mixed


def _mixed(weights_Mn: Tensor, tokens_NnD: Tensor) -> Tensor:
    """Mixtures of each row's tokens: [N, M, D]."""
    return torch.einsum("mn,bnd->bmd", weights_Mn, tokens_NnD)
