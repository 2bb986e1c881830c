"""A window of a topic, written into a real Kafka: whole, in order, once, at a chosen speed."""
