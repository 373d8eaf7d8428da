"""How far the stronger model reaches: coverage from capacity, trimmed by its tail, spread over segments."""
