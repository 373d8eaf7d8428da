"""What others use of ranking: current targets, sending requests, following a topic."""
