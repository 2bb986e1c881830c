// Package kafka gives version 1 of confluent-kafka-go the path of version 2, which main.go imports.
package kafka

import "github.com/confluentinc/confluent-kafka-go/kafka"

// What main.go uses.
type (
	ConfigMap      = kafka.ConfigMap
	Consumer       = kafka.Consumer
	Error          = kafka.Error
	Event          = kafka.Event
	Message        = kafka.Message
	Offset         = kafka.Offset
	PartitionEOF   = kafka.PartitionEOF
	TopicPartition = kafka.TopicPartition
)

const OffsetBeginning = kafka.OffsetBeginning

// NewConsumer makes a consumer.
func NewConsumer(config *ConfigMap) (*Consumer, error) { return kafka.NewConsumer(config) }
