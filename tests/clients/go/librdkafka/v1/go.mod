module github.com/confluentinc/confluent-kafka-go/v2

go 1.21

require github.com/confluentinc/confluent-kafka-go v1.8.2
