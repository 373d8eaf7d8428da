"""A world with known truth: who would click on what, and so what a wider search really earns.

Users and ads have latent vectors. A click's log-odds are

    base + segment + platform + quality(ad) + affinity * <user, ad> / sqrt(D)

and what a model may see of it is noisy: user features (the latent vector plus noise that belongs to the
user), ids, bids, past clicks, and a retrieval score, which is the true log-value plus a noise that differs by
segment. Retrieval order is therefore informative, but winners also come from far down; how far is a property
of the segment, not of its worth.

Shape legend: B users, A ads of the catalogue, N candidates, D latent dimensions, F user features, H past
clicks.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.simulator.hashed_draws import hashed_uniforms, normals_from_uniforms

OutcomeKind = Literal["view", "click", "conversion"]


@dataclass(frozen=True)
class SegmentProfile:
    """One advertiser segment: its share of users, its worth, and how far to trust its retrieval order."""

    name: str
    share: float
    bid_scale: float
    click_bias: float
    retrieval_noise: float


@dataclass(frozen=True)
class PlatformProfile:
    """One platform: its share of users and how readily they click there (added to the log-odds)."""

    name: str
    share: float
    click_bias: float


# The most valuable segment has the best retrieval and so the least to gain from a wider search: whoever
# spends capacity by absolute value spends it in the wrong place.
DEFAULT_SEGMENTS = (
    SegmentProfile("finance", share=0.15, bid_scale=2.4, click_bias=0.0, retrieval_noise=0.4),
    SegmentProfile("travel", share=0.20, bid_scale=1.6, click_bias=0.0, retrieval_noise=2.2),
    SegmentProfile("retail", share=0.40, bid_scale=1.1, click_bias=0.1, retrieval_noise=1.1),
    SegmentProfile("gaming", share=0.25, bid_scale=0.8, click_bias=0.1, retrieval_noise=3.0),
)
DEFAULT_PLATFORMS = (
    PlatformProfile("app", share=0.55, click_bias=0.1),
    PlatformProfile("mobile_web", share=0.30, click_bias=-0.1),
    PlatformProfile("desktop", share=0.15, click_bias=0.0),
)


@dataclass(frozen=True)
class WorldConfig:
    """Everything that shapes a world; two worlds of equal config are equal.

    Raises: ValueError on shares that do not add up to one and on counts or scales that are not positive.
    """

    seed: int = 1
    num_users: int = 5_000_000
    num_ads: int = 4_000
    num_topics: int = 32
    num_latents: int = 8
    base_log_odds: float = -3.8
    affinity_scale: float = 1.2
    quality_scale: float = 0.4
    log_bid_scale: float = 0.5
    feature_noise: float = 0.6
    num_past_exposures: int = 128
    conversion_probability: float = 0.08
    view_delay_mean_s: float = 0.5
    click_delay_median_s: float = 3.0
    conversion_delay_median_s: float = 60.0
    segments: tuple[SegmentProfile, ...] = DEFAULT_SEGMENTS
    platforms: tuple[PlatformProfile, ...] = DEFAULT_PLATFORMS

    def __post_init__(self) -> None:
        for kind, shares in (
            ("segment", [s.share for s in self.segments]),
            ("platform", [p.share for p in self.platforms]),
        ):
            if not shares or min(shares) < 0 or abs(sum(shares) - 1.0) > 1e-9:
                raise ValueError(f"{kind} shares must be non-negative and add up to 1, got {shares}")
        for name in (
            "num_users",
            "num_ads",
            "num_topics",
            "num_latents",
            "view_delay_mean_s",
            "click_delay_median_s",
            "conversion_delay_median_s",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not 0.0 <= self.conversion_probability <= 1.0:
            raise ValueError(f"conversion_probability must be in [0, 1], got {self.conversion_probability}")

    @property
    def num_features(self) -> int:
        """Length of a user's feature vector: noisy latents, then segment and platform as one-hot."""
        return self.num_latents + len(self.segments) + len(self.platforms)


class DrawnRequest(NamedTuple):
    """One request as a caller would send it; nothing in it reveals more than a model may see.

    ad_ids_N, bids_N (value per click, currency) and retrieval_scores_N are in retrieval order, best first.
    """

    user_id: int
    user_features_F: NDArray[np.float32]
    history_ids_H: NDArray[np.int64]
    platform: str
    advertiser_segment: str
    ad_ids_N: NDArray[np.int64]
    bids_N: NDArray[np.float32]
    retrieval_scores_N: NDArray[np.float32]


class Outcome(NamedTuple):
    """What became of one shown ad: `ad_index` is its place among those shown, `delay_s` counts from exposure.

    `value` is the platform's revenue in currency: the bid for a click, zero for views and conversions, so
    that the expected sum of values is `World.true_value`.
    """

    ad_index: int
    kind: OutcomeKind
    delay_s: float
    value: float


class _User(NamedTuple):
    latent_D: NDArray[np.float64]
    feature_noise_D: NDArray[np.float64]
    segment: int
    platform: int


class World:
    """Users, ads and the truth about them, fixed by `config.seed`; draws come from the caller's generator."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config
        rng = np.random.default_rng(config.seed)
        topics_TD = rng.standard_normal((config.num_topics, config.num_latents))
        topic_of_ad_A = rng.integers(config.num_topics, size=config.num_ads)
        own_AD = rng.standard_normal((config.num_ads, config.num_latents))
        # 0.8 and 0.6: the variance per dimension stays one.
        self._ad_latents_AD = 0.8 * topics_TD[topic_of_ad_A] + 0.6 * own_AD
        self._quality_A = config.quality_scale * rng.standard_normal(config.num_ads)
        log_bid_A = config.log_bid_scale * rng.standard_normal(config.num_ads)
        self._catalogue_bids_A = np.exp(log_bid_A)
        self._pull = config.affinity_scale / np.sqrt(config.num_latents)
        self._retrieval_latents_AD = self._ad_latents_AD.astype(np.float32)
        self._retrieval_offset_A = (self._quality_A + log_bid_A).astype(np.float32)
        # Users are hashed, not stored: millions cost no memory. A request's user is asked for again when it is judged.
        self._user = lru_cache(maxsize=4096)(self._hash_user)
        self._segment_edges = np.cumsum([s.share for s in config.segments])[:-1]
        self._platform_edges = np.cumsum([p.share for p in config.platforms])[:-1]

    def draw_request(self, rng: np.random.Generator, num_candidates: int) -> DrawnRequest:
        """Draw one user and retrieve `num_candidates` ads for it, best retrieval score first.

        Raises: ValueError where the catalogue holds fewer ads than asked for.
        """
        config = self.config
        if not 1 <= num_candidates <= config.num_ads:
            raise ValueError(f"num_candidates must be in [1, {config.num_ads}], got {num_candidates}")
        user_id = int(rng.integers(config.num_users))
        user = self._user(user_id)
        segment = config.segments[user.segment]
        scores_A = self._retrieval_latents_AD @ (self._pull * user.latent_D).astype(np.float32)
        scores_A += self._retrieval_offset_A
        scores_A += np.float32(segment.retrieval_noise) * rng.standard_normal(config.num_ads, dtype=np.float32)
        # Ascending ids first, so that the stable sort breaks ties by id.
        ad_ids_N = np.sort(np.argpartition(-scores_A, num_candidates - 1)[:num_candidates])
        ad_ids_N = ad_ids_N[np.argsort(-scores_A[ad_ids_N], kind="stable")]
        return DrawnRequest(
            user_id=user_id,
            user_features_F=self._features(user),
            history_ids_H=self._draw_history(rng, user),
            platform=config.platforms[user.platform].name,
            advertiser_segment=segment.name,
            ad_ids_N=ad_ids_N,
            bids_N=self._bids(user, ad_ids_N),
            retrieval_scores_N=scores_A[ad_ids_N],
        )

    def bids(self, user_id: int, ad_ids_N: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what a click of this user on each ad is worth, currency, float32 [N]."""
        return self._bids(self._user(user_id), self._checked(ad_ids_N))

    def click_probability(self, user_id: int, ad_ids_N: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the true probability that the user clicks on each ad when it is shown, float64 [N]."""
        return self._click_probability(self._user(user_id), self._checked(ad_ids_N))

    def believed_probability(
        self, user_id: int, ad_ids_N: NDArray[np.int64], *, noise_share: float
    ) -> NDArray[np.float64]:
        """Return the click probability as the best scorer sees it that knows the user up to a share of the noise.

        With latents u ~ N(0, 1) and features x = u + s n of noise s = noise_share * feature_noise, the best guess of u
        is its posterior mean x / (1 + s^2). A share of 1 is what the features tell, 0 the truth. float64 [N].
        """
        user = self._user(user_id)
        deviation = noise_share * self.config.feature_noise
        seen_D = (user.latent_D + noise_share * user.feature_noise_D) / (1.0 + deviation * deviation)
        return self._click_probability(user._replace(latent_D=seen_D), self._checked(ad_ids_N))

    def true_value(self, user_id: int, shown_ad_ids: NDArray[np.int64], bids: NDArray[np.float32]) -> float:
        """Return what showing these ads earns in expectation, currency: the sum of probability times bid."""
        return float(self.click_probability(user_id, shown_ad_ids) @ bids.astype(np.float64))

    def draw_outcomes(self, rng: np.random.Generator, user_id: int, shown_ad_ids: NDArray[np.int64]) -> list[Outcome]:
        """Draw what becomes of the ads shown, by delay: a view each, clicks, and conversions after clicks.

        Delays: a view's is exponential; from there a click's, and from there a conversion's, are log-normal
        (sigma 0.7 and 1.0: most soon, some very late). Values are as in `Outcome`.
        """
        config = self.config
        num_shown = len(shown_ad_ids)
        clicked = rng.random(num_shown) < self.click_probability(user_id, shown_ad_ids)
        converted = clicked & (rng.random(num_shown) < config.conversion_probability)
        view_s = rng.exponential(config.view_delay_mean_s, num_shown)
        click_s = view_s + config.click_delay_median_s * rng.lognormal(0.0, 0.7, num_shown)
        conversion_s = click_s + config.conversion_delay_median_s * rng.lognormal(0.0, 1.0, num_shown)
        bids = self.bids(user_id, shown_ad_ids)
        outcomes = [Outcome(i, "view", float(view_s[i]), 0.0) for i in range(num_shown)]
        outcomes += [Outcome(int(i), "click", float(click_s[i]), float(bids[i])) for i in np.flatnonzero(clicked)]
        outcomes += [Outcome(int(i), "conversion", float(conversion_s[i]), 0.0) for i in np.flatnonzero(converted)]
        return sorted(outcomes, key=lambda outcome: outcome.delay_s)

    def _hash_user(self, user_id: int) -> _User:
        num_latents = self.config.num_latents
        uniforms = hashed_uniforms(np.array([user_id]), 2 + 2 * num_latents, seed=self.config.seed)
        normals = normals_from_uniforms(uniforms[:, 2:])[0]
        place = uniforms[0, :2]
        return _User(
            latent_D=normals[:num_latents],
            feature_noise_D=self.config.feature_noise * normals[num_latents:],
            segment=int(np.searchsorted(self._segment_edges, place[0], side="right")),
            platform=int(np.searchsorted(self._platform_edges, place[1], side="right")),
        )

    def _features(self, user: _User) -> NDArray[np.float32]:
        config = self.config
        features_F = np.zeros(config.num_features, dtype=np.float32)
        features_F[: config.num_latents] = user.latent_D + user.feature_noise_D
        features_F[config.num_latents + user.segment] = 1.0
        features_F[config.num_latents + len(config.segments) + user.platform] = 1.0
        return features_F

    def _bids(self, user: _User, ad_ids_N: NDArray[np.int64]) -> NDArray[np.float32]:
        bids_N: NDArray[np.float32] = (
            self.config.segments[user.segment].bid_scale * self._catalogue_bids_A[ad_ids_N]
        ).astype(np.float32)
        return bids_N

    def _click_probability(self, user: _User, ad_ids_N: NDArray[np.int64]) -> NDArray[np.float64]:
        config = self.config
        bias = (
            config.base_log_odds + config.segments[user.segment].click_bias + config.platforms[user.platform].click_bias
        )
        affinity_N = self._ad_latents_AD[ad_ids_N] @ user.latent_D
        log_odds_N = bias + self._quality_A[ad_ids_N] + self._pull * affinity_N
        probability_N: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-log_odds_N))
        return probability_N

    def _draw_history(self, rng: np.random.Generator, user: _User) -> NDArray[np.int64]:
        exposed = rng.integers(self.config.num_ads, size=self.config.num_past_exposures)
        return exposed[rng.random(len(exposed)) < self._click_probability(user, exposed)]

    def _checked(self, ad_ids_N: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(ad_ids_N) and not (ad_ids_N.min() >= 0 and ad_ids_N.max() < self.config.num_ads):
            raise ValueError(f"ad ids must be in [0, {self.config.num_ads}), got {ad_ids_N.min()}..{ad_ids_N.max()}")
        return ad_ids_N
