// Does what it is asked with confluent-kafka-go, which has librdkafka in it. Each .mod has another
// version of both.
package main

import (
	"context"

	"asked"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const (
	pollMs     = 100
	maxWaitMs  = 100   // of a fetch
	patienceMs = 60000 // for an answer
)

type client struct{}

func main() { asked.Main(client{}) }

func (client) Read(ctx context.Context, request *asked.Request, reading *asked.Reading) error {
	consumer, err := connect(request, kafka.ConfigMap{"enable.partition.eof": true})
	if err != nil {
		return err
	}
	// Nothing is closed: in version 1.8.2 that takes ten seconds.
	if err := consumer.Assign(partitions(request, kafka.OffsetBeginning)); err != nil {
		return err
	}
	for !reading.Done() {
		event, err := next(ctx, consumer)
		switch event := event.(type) {
		case *kafka.Message:
			reading.Take(asRecord(event))
		case kafka.PartitionEOF:
			reading.At(event.Partition, int64(event.Offset))
		default:
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (client) Lookup(
	_ context.Context, request *asked.Request, partition int32, timeMs int64,
) (int64, error) {
	consumer, err := connect(request, kafka.ConfigMap{})
	if err != nil {
		return 0, err
	}
	defer consumer.Close()
	times := []kafka.TopicPartition{
		{Topic: &request.Topic, Partition: partition, Offset: kafka.Offset(timeMs)},
	}
	found, err := consumer.OffsetsForTimes(times, patienceMs)
	if err != nil {
		return 0, err
	}
	return int64(found[0].Offset), found[0].Error
}

func (client) Group(ctx context.Context, request *asked.Request, share *asked.Share) error {
	consumer, err := connect(request, kafka.ConfigMap{
		"group.id": request.Group, "auto.offset.reset": "earliest",
	})
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := consumer.SubscribeTopics([]string{request.Topic}, nil); err != nil {
		return err
	}
	for share.Left() > 0 {
		event, err := next(ctx, consumer)
		if err != nil {
			return err
		}
		if message, is := event.(*kafka.Message); is {
			share.Take(message.TopicPartition.Partition, int64(message.TopicPartition.Offset))
		}
	}
	ends := []kafka.TopicPartition{}
	for partition, end := range share.Ends() {
		ends = append(ends, kafka.TopicPartition{
			Topic: &request.Topic, Partition: partition, Offset: kafka.Offset(end),
		})
	}
	_, err = consumer.CommitOffsets(ends)
	return err
}

func (client) Topics(_ context.Context, request *asked.Request) (map[string]int, error) {
	consumer, err := connect(request, kafka.ConfigMap{})
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	metadata, err := consumer.GetMetadata(nil, true, patienceMs)
	if err != nil {
		return nil, err
	}
	topics := map[string]int{}
	for name, topic := range metadata.Topics {
		topics[name] = len(topic.Partitions)
	}
	return topics, nil
}

func connect(request *asked.Request, more kafka.ConfigMap) (*kafka.Consumer, error) {
	isolation := map[bool]string{true: "read_committed", false: "read_uncommitted"}
	protocol, login := "PLAINTEXT", request.Security
	if login.CA != "" {
		protocol, more["ssl.ca.location"] = "SSL", login.CA
	}
	if login.Mechanism != "" {
		protocol = map[bool]string{true: "SASL_SSL", false: "SASL_PLAINTEXT"}[login.CA != ""]
		more["sasl.mechanism"] = login.Mechanism
		more["sasl.username"], more["sasl.password"] = login.User, login.Password
	}
	config := kafka.ConfigMap{
		"bootstrap.servers": request.Servers, "group.id": "judge", "enable.auto.commit": false,
		"auto.offset.reset": "error", "check.crcs": true, "fetch.wait.max.ms": maxWaitMs,
		"isolation.level": isolation[request.Committed], "security.protocol": protocol,
	}
	for name, value := range more {
		config[name] = value
	}
	return kafka.NewConsumer(&config)
}

func partitions(request *asked.Request, offset kafka.Offset) []kafka.TopicPartition {
	all := []kafka.TopicPartition{}
	for partition := range request.Ends {
		all = append(all, kafka.TopicPartition{
			Topic: &request.Topic, Partition: partition, Offset: offset,
		})
	}
	return all
}

// The next event, nil if none comes in a moment. Whatever the client calls an error is one, also
// where it would try again by itself.
func next(ctx context.Context, consumer *kafka.Consumer) (kafka.Event, error) {
	event := consumer.Poll(pollMs)
	switch event := event.(type) {
	case *kafka.Message:
		return event, event.TopicPartition.Error
	case kafka.Error:
		return event, event
	}
	return event, ctx.Err()
}

func asRecord(message *kafka.Message) asked.Record {
	headers := make([]asked.Header, len(message.Headers))
	for at, header := range message.Headers {
		headers[at] = asked.Header{Name: header.Key, Value: header.Value}
	}
	return asked.Record{
		Partition: message.TopicPartition.Partition, Offset: int64(message.TopicPartition.Offset),
		TimeMs: message.Timestamp.UnixMilli(), Key: message.Key, Value: message.Value,
		Headers: headers,
	}
}
