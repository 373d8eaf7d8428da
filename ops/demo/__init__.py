"""The demo: the whole pipeline on a local Kafka, watched and judged from its topics."""
