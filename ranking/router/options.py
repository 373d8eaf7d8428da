"""How one router is run."""

from dataclasses import dataclass, field

from ranking.router.policy import RouterPolicy
from schemas.settings import TimeSettings
from schemas.topics import Namespace


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """One router. ``router_id`` names it in records and in the group, where it is a static member.

    The skew and the interval of ``time`` replace those of ``policy``.
    """

    namespace: Namespace
    time: TimeSettings
    router_id: str
    health_port: int = 0
    policy: RouterPolicy = field(default_factory=RouterPolicy)
