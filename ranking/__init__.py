"""Ranking: the router in front, the replicas behind it, and the models they score with."""
