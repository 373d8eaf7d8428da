"""The thin edge to Kafka that every part shares: settings, durable sending, offsets, topics."""
