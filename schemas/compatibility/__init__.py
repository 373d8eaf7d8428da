"""Whether what one schema has written can be read with another: the rules, the committed history, the gate."""
