"""The client side of serving: from a request to its one result. Pure but for `worker`, the edge to Kafka."""
