// Does what it is asked with kafka-go.
package main

import (
	"context"
	"errors"
	"time"

	"asked"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

const (
	maxWait = 3 * time.Second // of a fetch; kafka-go tells the server a second less
	moment  = 100 * time.Millisecond
	silent  = 3 // fetches without a record, at the end
)

type client struct{}

func main() { asked.Main(client{}) }

// A reader has one partition. So one after the other is read.
func (client) Read(ctx context.Context, request *asked.Request, reading *asked.Reading) error {
	for partition, end := range request.Ends {
		if err := read(ctx, request, reading, partition, end); err != nil {
			return err
		}
	}
	return nil
}

func read(
	ctx context.Context, request *asked.Request, reading *asked.Reading, partition int32, end int64,
) error {
	offsets, err := listed(ctx, request, kafka.FirstOffsetOf(int(partition)))
	if err != nil || offsets.FirstOffset >= end {
		return err
	}
	config, err := configured(request)
	if err != nil {
		return err
	}
	config.Partition = int(partition)
	reader := kafka.NewReader(config)
	defer reader.Close()
	fetches := int64(0)
	for position := offsets.FirstOffset; position < end && !reading.Silent(fetches, silent); {
		message, err := next(ctx, reader)
		if err == nil {
			reading.Take(asRecord(message))
			position = message.Offset + 1
		} else if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		fetches += reader.Stats().Fetches
	}
	return nil
}

func next(ctx context.Context, reader *kafka.Reader) (kafka.Message, error) {
	soon, cancel := context.WithTimeout(ctx, moment)
	defer cancel()
	return reader.FetchMessage(soon)
}

func (client) Lookup(
	ctx context.Context, request *asked.Request, partition int32, timeMs int64,
) (int64, error) {
	found, err := listed(ctx, request, kafka.OffsetRequest{
		Partition: int(partition), Timestamp: timeMs,
	})
	for offset := range found.Offsets { // there is one, or none is that late
		return offset, err
	}
	return -1, err
}

func listed(
	ctx context.Context, request *asked.Request, what kafka.OffsetRequest,
) (kafka.PartitionOffsets, error) {
	dialer, err := dialing(request)
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	transport := &kafka.Transport{TLS: dialer.TLS, SASL: dialer.SASLMechanism}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(request.Seeds()...), Transport: transport}
	answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{request.Topic: {what}},
	})
	if err != nil {
		return kafka.PartitionOffsets{}, err
	}
	found := answer.Topics[request.Topic][0]
	return found, found.Error
}

func (client) Group(ctx context.Context, request *asked.Request, share *asked.Share) error {
	config, err := configured(request)
	if err != nil {
		return err
	}
	config.GroupID = request.Group
	reader := kafka.NewReader(config)
	defer reader.Close()
	taken := []kafka.Message{}
	for share.Left() > 0 {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		share.Take(int32(message.Partition), message.Offset)
		taken = append(taken, message)
	}
	return reader.CommitMessages(ctx, taken...)
}

func (client) Topics(ctx context.Context, request *asked.Request) (map[string]int, error) {
	dialer, err := dialing(request)
	if err != nil {
		return nil, err
	}
	server, err := dialer.DialContext(ctx, "tcp", request.Seeds()[0])
	if err != nil {
		return nil, err
	}
	defer server.Close()
	partitions, err := server.ReadPartitions()
	topics := map[string]int{}
	for _, partition := range partitions {
		topics[partition.Topic]++
	}
	return topics, err
}

func configured(request *asked.Request) (kafka.ReaderConfig, error) {
	dialer, err := dialing(request)
	config := kafka.ReaderConfig{
		Brokers: request.Seeds(), Topic: request.Topic, Dialer: dialer, MaxWait: maxWait,
	}
	if request.Committed {
		config.IsolationLevel = kafka.ReadCommitted
	}
	return config, err
}

func dialing(request *asked.Request) (*kafka.Dialer, error) {
	security, err := request.TLS()
	if err != nil {
		return nil, err
	}
	login, err := mechanism(request.Security)
	return &kafka.Dialer{Timeout: time.Minute, TLS: security, SASLMechanism: login}, err
}

func mechanism(login asked.Security) (sasl.Mechanism, error) {
	switch login.Mechanism {
	case "":
		return nil, nil
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, login.User, login.Password)
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, login.User, login.Password)
	}
	return plain.Mechanism{Username: login.User, Password: login.Password}, nil
}

// kafka-go has nil for an empty key or value, and for null. Here both are empty.
func asRecord(message kafka.Message) asked.Record {
	headers := make([]asked.Header, len(message.Headers))
	for at, header := range message.Headers {
		headers[at] = asked.Header{Name: header.Key, Value: empty(header.Value)}
	}
	return asked.Record{
		Partition: int32(message.Partition), Offset: message.Offset,
		TimeMs: message.Time.UnixMilli(), Key: empty(message.Key), Value: empty(message.Value),
		Headers: headers,
	}
}

func empty(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}
