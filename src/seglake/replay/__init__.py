"""A window of a topic is written into a real Kafka: in order, once, at a chosen speed."""
