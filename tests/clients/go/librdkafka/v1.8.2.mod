module client

go 1.24.3

require (
	asked v0.0.0
	github.com/confluentinc/confluent-kafka-go/v2 v2.0.0
)

require github.com/confluentinc/confluent-kafka-go v1.8.2 // indirect

replace github.com/confluentinc/confluent-kafka-go/v2 => ./v1

replace asked => ../asked
