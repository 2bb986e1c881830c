"""Write a window of a topic to a real Kafka: in order, once, at a chosen speed."""
