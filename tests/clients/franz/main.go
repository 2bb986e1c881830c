// Reads so many records of a topic, from the starts of its partitions, with franz-go; then whatever
// comes in a moment more. Prints each as one line of JSON: partition, offset, timestamp in ms, key
// and value in base64 or null.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	topic := os.Args[2]
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	fail(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topic)
	fail(err)
	fail(starts.Error())
	from := map[int32]kgo.Offset{}
	starts.Each(func(start kadm.ListedOffset) {
		from[start.Partition] = kgo.NewOffset().At(start.Offset)
	})
	left, err := strconv.Atoi(os.Args[3])
	fail(err)
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	out := json.NewEncoder(os.Stdout)
	read := func(ctx context.Context) {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) || left > 0 {
				fail(err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			fail(out.Encode([]any{r.Partition, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value}))
			left--
		})
	}
	for left > 0 {
		read(ctx)
	}
	moment, end := context.WithTimeout(ctx, 300*time.Millisecond)
	defer end()
	read(moment)
}
