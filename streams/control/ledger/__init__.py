"""What is known of each pool beyond one window: how long its capacity lasts, and what keeps a lever from more. Pure."""
