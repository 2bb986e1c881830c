"""The commands that exchange logs with Kafka brokers, and what they print."""
