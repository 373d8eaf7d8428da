"""What a model is trained on and judged by in a world: `intertidal train --world`.

Shape legend: R requests, W widths.
"""

from collections.abc import Iterator

import numpy as np

from ops.simulator.impressions import draw_impressions
from ops.simulator.quality import WidthValues, width_values
from ops.simulator.world import World
from ranking.models.scorer import Scorer
from ranking.models.training.quality import mean_interval
from ranking.models.training.views import SplitViews

_NUM_HELD_OUT_REQUESTS = 4_000
_WIDTHS = (64, 128, 256, 512)
_MAX_RANKED_REQUESTS = 1_500


def drawn_views(world: World, seed: int, *, num_requests: int) -> SplitViews:
    """Draw views to train on, and a tenth as many, at most 4,000 requests, to stop by and to judge by."""
    rng = np.random.default_rng(seed)
    num_others = min(_NUM_HELD_OUT_REQUESTS, max(1, num_requests // 10))
    return SplitViews(
        training=draw_impressions(world, rng, num_requests=num_requests),
        validation=draw_impressions(world, rng, num_requests=num_others),
        held_out=draw_impressions(world, rng, num_requests=num_others),
    )


def ranked_values(world: World, scorer: Scorer, seed: int, *, num_requests: int) -> WidthValues:
    """True value of what a model would show, at the widths that a wider search has; of 1,500 requests at most."""
    # Not the generator of the views: these requests are new.
    rng = np.random.default_rng(seed + 1)
    return width_values(world, scorer, rng, widths=_WIDTHS, num_requests=min(num_requests, _MAX_RANKED_REQUESTS))


def lines_of(world: World, values: WidthValues) -> Iterator[str]:
    """The values as a table for a person, by segment."""
    segment_R = np.array(values.segments)
    yield f"true value of 8 ads per request: retrieval's head, best of {values.widths}, widest less base"
    for name in ("all", *(segment.name for segment in world.config.segments)):
        rows = np.full(len(segment_R), True) if name == "all" else segment_R == name
        if rows.sum() < 2:
            continue
        gain, low, high = mean_interval(values.model_RW[rows, -1] - values.model_RW[rows, 0])
        means = " ".join(f"{mean:8.4f}" for mean in values.model_RW[rows].mean(axis=0))
        yield f"  {name:8} {values.retrieval_R[rows].mean():8.4f} {means}   {gain:+.4f} [{low:.4f}, {high:.4f}]"
    believed = values.predicted_RW.sum(axis=0) / values.model_RW.sum(axis=0)
    yield "predicted over true value of the choice: " + " ".join(f"{ratio:.4f}" for ratio in believed)
