"""The thin piece that replicas call: numpy columns in, finite expected values out.

Shape legend: B requests, N candidates of one chunk.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ranking.models.devices import device_named
from ranking.models.inputs import CandidateChunk, Users, check_index
from ranking.models.protocol import CandidateTensors, EncodedUsers, RankingModel, UserTensors


class ScoringError(Exception):
    """A model gave scores that are not finite; `positions` are their places in the chunk, int64 [n]."""

    def __init__(self, version: str, positions: NDArray[np.int64], num_candidates: int) -> None:
        super().__init__(
            f"model {version}: {len(positions)} of {num_candidates} scores not finite, first: {positions[0]}"
        )
        self.positions = positions


class Scorer:
    """Scores chunks of candidates with one model on one device.

    `num_threads` is PyTorch's for the whole process: replicas grow by processes, and one thread each keeps
    them from fighting for cores.
    Raises: ValueError on an unknown device, a CUDA device that is not there, or fewer than one thread.
    """

    def __init__(self, model: RankingModel, device: str = "cpu", *, num_threads: int = 1) -> None:
        if num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, got {num_threads}")
        self._device = device_named(device)
        torch.set_num_threads(num_threads)
        if isinstance(model, torch.nn.Module):
            model.to(self._device).eval()
        self._model = model

    @property
    def version(self) -> str:
        """Version of the model that scores."""
        return self._model.version

    @torch.inference_mode()
    def prepare(self, users: Users) -> EncodedUsers:
        """Compute once what depends on the users alone; good for any number of chunks of these requests."""
        return self._model.encode_users(
            UserTensors(
                features_BF=self._tensor(users.features_BF),
                history_ids_H=self._tensor(users.history_ids_H),
                request_of_history_H=self._tensor(users.request_of_history_H),
            )
        )

    @torch.inference_mode()
    def score_chunk(self, encoded: EncodedUsers, chunk: CandidateChunk) -> NDArray[np.float32]:
        """Return each candidate's expected value, currency, float32 [N]; done when it returns, on CUDA too.

        Raises: ValueError where the users were encoded by another version or the chunk names a request that
        is not among them; ScoringError on scores that are not finite, which are never returned.
        """
        if encoded.version != self._model.version:
            raise ValueError(f"users encoded by {encoded.version} cannot be scored by {self._model.version}")
        check_index("request_of_candidate_N", chunk.request_of_candidate_N, encoded.num_requests)
        scores = self._model.score(
            encoded,
            CandidateTensors(
                ad_ids_N=self._tensor(chunk.ad_ids_N),
                bids_N=self._tensor(chunk.bids_N),
                retrieval_scores_N=self._tensor(chunk.retrieval_scores_N),
                request_of_candidate_N=self._tensor(chunk.request_of_candidate_N),
            ),
        )
        if scores.shape != (len(chunk),) or scores.dtype != torch.float32:
            raise ValueError(
                f"model {self.version}: want float32 [{len(chunk)}], got {scores.dtype} {list(scores.shape)}"
            )
        scores_N = self._finished(scores)
        wrong = np.flatnonzero(~np.isfinite(scores_N))
        if len(wrong):
            raise ScoringError(self.version, wrong, len(chunk))
        return scores_N

    def _finished(self, scores_N: Tensor) -> NDArray[np.float32]:
        if self._device.type != "cuda":
            return scores_N.numpy()
        # Kernels only queue: until the event has passed, the chunk still occupies the device, and a reclaim
        # that believed otherwise would report a drained pool too early.
        host_N = torch.empty(scores_N.shape, dtype=scores_N.dtype, pin_memory=True)
        host_N.copy_(scores_N, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record(torch.cuda.current_stream(self._device))
        done.synchronize()
        return host_N.numpy()

    def _tensor(self, column: NDArray[np.generic]) -> Tensor:
        # Columns read in place from a Kafka message are read-only, which torch cannot express; nor negative
        # strides.
        writable = column if column.flags.writeable and column.flags.c_contiguous else column.copy()
        return torch.from_numpy(writable).to(self._device)
