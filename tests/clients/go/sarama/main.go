// Does what it is asked with Sarama; `newest` as its argument sets the newest version of Kafka that
// Sarama knows, instead of the one it speaks by default.
package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"asked"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"github.com/xdg-go/scram"
)

const (
	maxWait = 100 * time.Millisecond // of a fetch
	silent  = 5                      // fetches without a record, at the end
)

type client struct{}

func main() { asked.Main(client{}) }

func (client) Read(ctx context.Context, request *asked.Request, reading *asked.Reading) error {
	kafka, err := connect(request)
	if err != nil {
		return err
	}
	defer kafka.Close()
	messages, failures := make(chan *sarama.ConsumerMessage), make(chan error)
	for partition := range request.Ends {
		start, err := kafka.GetOffset(request.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		reading.At(partition, start)
	}
	consumer, err := sarama.NewConsumerFromClient(kafka)
	if err != nil {
		return err
	}
	for partition := range request.Ends {
		from, err := consumer.ConsumePartition(request.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		go forward(from, messages, failures)
	}
	for !reading.Done() && !reading.Silent(fetches(kafka), silent) {
		select {
		case message := <-messages:
			reading.Take(asRecord(message))
		case err := <-failures:
			return err
		case <-time.After(maxWait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func forward(
	from sarama.PartitionConsumer, messages chan<- *sarama.ConsumerMessage, failures chan<- error,
) {
	for {
		select {
		case message := <-from.Messages():
			messages <- message
		case err := <-from.Errors():
			failures <- err
		}
	}
}

// How many fetches have been sent.
func fetches(kafka sarama.Client) int64 {
	meter, _ := kafka.Config().MetricRegistry.Get("consumer-fetch-rate").(metrics.Meter)
	if meter == nil {
		return 0
	}
	return meter.Count()
}

func (client) Lookup(
	_ context.Context, request *asked.Request, partition int32, timeMs int64,
) (int64, error) {
	kafka, err := connect(request)
	if err != nil {
		return 0, err
	}
	defer kafka.Close()
	return kafka.GetOffset(request.Topic, partition, timeMs)
}

func (client) Group(ctx context.Context, request *asked.Request, share *asked.Share) error {
	kafka, err := connect(request)
	if err != nil {
		return err
	}
	defer kafka.Close()
	group, err := sarama.NewConsumerGroupFromClient(request.Group, kafka)
	if err != nil {
		return err
	}
	enough, stop := context.WithCancel(ctx)
	defer stop()
	for share.Left() > 0 && err == nil {
		err = group.Consume(enough, []string{request.Topic}, &member{share: share, stop: stop})
		err = errors.Join(err, ctx.Err())
	}
	err = errors.Join(err, group.Close())
	for failure := range group.Errors() { // of the commit, too
		err = errors.Join(err, failure)
	}
	return err
}

// A member of a group, whose partitions are read side by side.
type member struct {
	mutex sync.Mutex
	share *asked.Share
	stop  func()
}

func (*member) Setup(sarama.ConsumerGroupSession) error { return nil }

func (*member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m *member) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		if !m.take(message) {
			break
		}
		session.MarkMessage(message, "")
	}
	return nil
}

func (m *member) take(message *sarama.ConsumerMessage) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	taken := m.share.Take(message.Partition, message.Offset)
	if m.share.Left() == 0 {
		m.stop()
	}
	return taken
}

func (client) Topics(_ context.Context, request *asked.Request) (map[string]int, error) {
	kafka, err := connect(request)
	if err != nil {
		return nil, err
	}
	defer kafka.Close()
	names, err := kafka.Topics()
	topics := map[string]int{}
	for _, name := range names {
		partitions, failure := kafka.Partitions(name)
		topics[name], err = len(partitions), errors.Join(err, failure)
	}
	return topics, err
}

func connect(request *asked.Request) (sarama.Client, error) {
	config := sarama.NewConfig()
	if len(os.Args) > 1 {
		config.Version = sarama.MaxVersion
	}
	config.Consumer.MaxWaitTime = maxWait
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	if request.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	security, err := request.TLS()
	if err != nil {
		return nil, err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = security != nil, security
	login(config, request.Security)
	return sarama.NewClient(request.Seeds(), config)
}

func login(config *sarama.Config, security asked.Security) {
	sasl := &config.Net.SASL
	sasl.Enable = security.Mechanism != ""
	sasl.Mechanism = sarama.SASLMechanism(security.Mechanism)
	sasl.User, sasl.Password = security.User, security.Password
	switch security.Mechanism {
	case "SCRAM-SHA-256":
		sasl.SCRAMClientGeneratorFunc = exchange(scram.SHA256)
	case "SCRAM-SHA-512":
		sasl.SCRAMClientGeneratorFunc = exchange(scram.SHA512)
	}
}

// SCRAM, which Sarama leaves to its user.
type conversation struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func exchange(hash scram.HashGeneratorFcn) func() sarama.SCRAMClient {
	return func() sarama.SCRAMClient { return &conversation{hash: hash} }
}

func (c *conversation) Begin(user, password, authorization string) error {
	begun, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.ClientConversation = begun.NewConversation()
	}
	return err
}

func asRecord(message *sarama.ConsumerMessage) asked.Record {
	headers := make([]asked.Header, len(message.Headers))
	for at, header := range message.Headers {
		headers[at] = asked.Header{Name: string(header.Key), Value: header.Value}
	}
	return asked.Record{
		Partition: message.Partition, Offset: message.Offset, TimeMs: message.Timestamp.UnixMilli(),
		Key: message.Key, Value: message.Value, Headers: headers,
	}
}
