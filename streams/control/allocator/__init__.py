"""How much of each pool each lever may have: a linear program over value curves, and what stands in for it."""
