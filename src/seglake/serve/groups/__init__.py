"""Consumer groups of the server: Kafka's classic protocol, and committed offsets in one file."""
