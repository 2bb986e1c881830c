"""Import, attach and export the log folders of Kafka brokers."""
