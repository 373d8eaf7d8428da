"""The ranking consumer: plans a micro-batch of work, scores it in chunks, answers, and gives way at the gate."""
