"""`seglake serve`: a read-only server that speaks Kafka's protocol; any client reads the lake."""
