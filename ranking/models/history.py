"""What a user's past clicks say, attended to once per request: interests that every candidate then reads.

    v_h = e_h + W_2 h_h,   h_h = relu(W_1 e_h + b_1)                             each past ad alone, e_h its embedding
    w_hq = exp(c tanh((K_q h_h + r_q[age]) / c)),   c = 8                        learned queries q
    interest_q = sum_h w_hq v_h / (null_q + sum_h w_hq)

Attention pooling by learned queries (Lee et al., "Set Transformer", arXiv 1810.00825, 3.2), one interest for each query
as in multi-interest retrieval (Li et al., MIND, arXiv 1904.08030). Target attention (DIN, arXiv 1706.06978), where each
candidate is a query, reads a history of 200 ads 512 times per request; here it is read once, and what a candidate costs
does not depend on how long the history is.

null_q is learned: the weight of an unseen click that says nothing (an attention sink; Gaussian shrinkage to the prior
mean where all weights are equal). So two clicks pull less than two hundred, and none gives exactly zero. Ages count in
clicks from the newest and enter by their power of two. The logits are bounded, so that no maximum has to be taken out
of them, and the sum over one user's clicks is one matrix product.

Shape legend: B requests, H past ids of all users, D embedding, W hidden width, Q interests.
"""

import torch
from torch import Tensor, nn

_LOGIT_LIMIT = 8.0
# Ages 0, 1..2, 3..6, ... and everything beyond a thousand.
_NUM_AGES = 11


class HistoryEncoder(nn.Module):
    """Interests of each user, from the embeddings of past ads."""

    def __init__(self, *, embedding_dim: int, width: int, num_interests: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(embedding_dim, width)
        self.value = nn.Linear(width, embedding_dim)
        self.key = nn.Linear(width, num_interests, bias=False)
        self.age_bias = nn.Parameter(torch.zeros(_NUM_AGES, num_interests))
        self.log_null = nn.Parameter(torch.zeros(num_interests))

    def forward(self, past_HD: Tensor, request_of_history_H: Tensor, num_requests: int) -> tuple[Tensor, Tensor]:
        """Return interests [B, Q, D] and the logarithm of 1 + the number of past clicks [B, 1].

        `request_of_history_H` ascends; each user's oldest click comes first.
        """
        lengths_B = torch.bincount(request_of_history_H, minlength=num_requests)
        hidden_HW = torch.relu(self.hidden(past_HD))
        logits_HQ = self.key(hidden_HW) + self.age_bias.index_select(0, _ages(lengths_B, request_of_history_H))
        weights_HQ = (_LOGIT_LIMIT * torch.tanh(logits_HQ / _LOGIT_LIMIT)).exp()
        # The column of ones adds up the weights beside the values.
        values_HD1 = torch.cat((past_HD + self.value(hidden_HW), past_HD.new_ones((len(past_HD), 1))), dim=1)
        lengths: list[int] = lengths_B.tolist()
        # One product per user: nothing is padded, and no other user's clicks are in the sum.
        of_users = zip(torch.split(weights_HQ, lengths), torch.split(values_HD1, lengths), strict=True)
        sums_BQD1 = torch.stack([weights_hQ.T @ values_hD1 for weights_hQ, values_hD1 in of_users])
        interests_BQD = sums_BQD1[..., :-1] / (sums_BQD1[..., -1:] + self.log_null.exp()[:, None])
        return interests_BQD, lengths_B[:, None].to(past_HD.dtype).log1p()


def _ages(lengths_B: Tensor, request_of_history_H: Tensor) -> Tensor:
    """The power of two below 1 + the number of newer clicks of the same user, bounded: int32 [H]."""
    places_H = torch.arange(1, len(request_of_history_H) + 1, device=request_of_history_H.device)
    one_and_newer_H = lengths_B.cumsum(0).index_select(0, request_of_history_H) + 1 - places_H
    # Exact, which a logarithm is not: x = m 2^e with 0.5 <= m < 1.
    exponents_H = torch.frexp(one_and_newer_H.to(torch.float32)).exponent
    return exponents_H.sub_(1).clamp_(max=_NUM_AGES - 1)
