"""A world whose truth is known, and what plays in it: users, ads, outcomes, hosts and callers."""
