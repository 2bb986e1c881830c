module client

go 1.25.0

require (
	asked v0.0.0
	github.com/confluentinc/confluent-kafka-go/v2 v2.15.1
)

replace asked => ../asked
