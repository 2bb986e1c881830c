module client

go 1.24.3

require (
	asked v0.0.0
	github.com/confluentinc/confluent-kafka-go/v2 v2.3.0
)

replace asked => ../asked
