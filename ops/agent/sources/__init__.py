"""Where an agent learns what its host has and what the owner uses of it."""
