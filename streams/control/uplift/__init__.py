"""What levers earn: from windows of sums to effects by segment. Pure."""
