// Does what it is asked with franz-go.
package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"asked"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	fetchKey = 1
	maxWait  = 100 * time.Millisecond // of a fetch
	silent   = 5                      // answers without a record, at the end
)

type client struct{}

func main() { asked.Main(client{}) }

func (client) Read(ctx context.Context, request *asked.Request, reading *asked.Reading) error {
	answers, from := &fetchAnswers{}, map[int32]kgo.Offset{}
	for partition := range request.Ends {
		from[partition] = kgo.NewOffset().AtStart()
	}
	kafka, err := connect(request, kgo.WithHooks(answers),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{request.Topic: from}))
	if err != nil {
		return err
	}
	defer kafka.Close()
	starts, err := kadm.NewClient(kafka).ListStartOffsets(ctx, request.Topic)
	if err != nil {
		return err
	}
	for partition := range request.Ends {
		start, _ := starts.Lookup(request.Topic, partition)
		if start.Err != nil {
			return start.Err
		}
		reading.At(partition, start.Offset)
	}
	for !reading.Done() && !reading.Silent(answers.Load(), silent) {
		records, err := poll(ctx, kafka, 1000)
		if err != nil {
			return err
		}
		for _, record := range records {
			reading.Take(asRecord(record))
		}
	}
	return nil
}

func (client) Lookup(
	ctx context.Context, request *asked.Request, partition int32, timeMs int64,
) (int64, error) {
	kafka, err := connect(request)
	if err != nil {
		return 0, err
	}
	defer kafka.Close()
	offsets, err := kadm.NewClient(kafka).ListOffsetsAfterMilli(ctx, timeMs, request.Topic)
	found, _ := offsets.Lookup(request.Topic, partition)
	if err = errors.Join(err, found.Err); err != nil {
		return 0, err
	}
	if found.Timestamp < 0 { // kadm has put the end there
		return -1, nil
	}
	return found.Offset, nil
}

func (client) Group(ctx context.Context, request *asked.Request, share *asked.Share) error {
	kafka, err := connect(request, kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer kafka.Close()
	taken := []*kgo.Record{}
	for share.Left() > 0 {
		records, err := poll(ctx, kafka, share.Left())
		if err != nil {
			return err
		}
		for _, record := range records {
			share.Take(record.Partition, record.Offset)
		}
		taken = append(taken, records...)
	}
	return errors.Join(kafka.CommitRecords(ctx, taken...), kafka.LeaveGroupContext(ctx))
}

func (client) Topics(ctx context.Context, request *asked.Request) (map[string]int, error) {
	kafka, err := connect(request)
	if err != nil {
		return nil, err
	}
	defer kafka.Close()
	details, err := kadm.NewClient(kafka).ListTopics(ctx)
	topics := map[string]int{}
	for name, topic := range details {
		topics[name] = len(topic.Partitions)
	}
	return topics, err
}

func connect(request *asked.Request, more ...kgo.Opt) (*kgo.Client, error) {
	options := append(more, kgo.SeedBrokers(request.Seeds()...), kgo.FetchMaxWait(maxWait))
	if request.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	security, err := request.TLS()
	if err != nil {
		return nil, err
	}
	if security != nil {
		options = append(options, kgo.DialTLSConfig(security))
	}
	if login := request.Security; login.Mechanism != "" {
		options = append(options, kgo.SASL(mechanism(login)))
	}
	return kgo.NewClient(options...)
}

func mechanism(login asked.Security) sasl.Mechanism {
	switch login.Mechanism {
	case "SCRAM-SHA-256":
		return scram.Auth{User: login.User, Pass: login.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: login.User, Pass: login.Password}.AsSha512Mechanism()
	}
	return plain.Auth{User: login.User, Pass: login.Password}.AsMechanism()
}

// The records that come within a moment.
func poll(ctx context.Context, kafka *kgo.Client, most int) ([]*kgo.Record, error) {
	moment, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	fetches := kafka.PollRecords(moment, most)
	err := ctx.Err()
	fetches.EachError(func(_ string, _ int32, each error) {
		if !errors.Is(each, context.DeadlineExceeded) {
			err = errors.Join(err, each)
		}
	})
	return fetches.Records(), err
}

func asRecord(record *kgo.Record) asked.Record {
	headers := make([]asked.Header, len(record.Headers))
	for at, header := range record.Headers {
		headers[at] = asked.Header{Name: header.Key, Value: header.Value}
	}
	return asked.Record{
		Partition: record.Partition, Offset: record.Offset, TimeMs: record.Timestamp.UnixMilli(),
		Key: record.Key, Value: record.Value, Headers: headers,
	}
}

// How many fetches have been answered.
type fetchAnswers struct{ atomic.Int64 }

func (a *fetchAnswers) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == fetchKey && e2e.Err() == nil {
		a.Add(1)
	}
}
