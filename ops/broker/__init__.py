"""A local Apache Kafka on loopback, and how a broker is found."""
