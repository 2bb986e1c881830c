// Package asked is what the programs of all Go clients share: it reads the request, hashes what a
// client hands out, and prints the answer. `tests/clients/program.py` says what these are.
package asked

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

const patience = 120 * time.Second

// Request is what the program is asked.
type Request struct {
	Servers   string
	Security  Security
	Action    string
	Topic     string
	Committed bool
	Ends      map[int32]int64
	Asked     [][2]int64 // partition, time in ms
	Group     string
	StopAfter int `json:"stop_after"`
}

// Security says how to connect; without a CA there is no TLS, without a mechanism no login.
type Security struct {
	CA        string
	Mechanism string
	User      string
	Password  string
}

// Client does what it is asked. It ends with its context, which has an end.
type Client interface {
	Read(ctx context.Context, request *Request, reading *Reading) error
	Lookup(ctx context.Context, request *Request, partition int32, timeMs int64) (int64, error)
	Group(ctx context.Context, request *Request, share *Share) error
	Topics(ctx context.Context, request *Request) (map[string]int, error)
}

// Main answers the request in stdin.
func Main(client Client) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request := &Request{}
	err := json.NewDecoder(os.Stdin).Decode(request)
	var answer map[string]any
	if err == nil {
		answer, err = answered(ctx, client, request)
	}
	if err != nil {
		answer = map[string]any{"error": err.Error()}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		panic(err)
	}
}

func answered(ctx context.Context, client Client, request *Request) (map[string]any, error) {
	switch request.Action {
	case "read":
		reading := newReading(request.Ends)
		err := client.Read(ctx, request, reading)
		return map[string]any{"partitions": reading.answer()}, err
	case "lookup":
		offsets := make([]int64, len(request.Asked))
		for at, asked := range request.Asked {
			offset, err := client.Lookup(ctx, request, int32(asked[0]), asked[1])
			if err != nil {
				return nil, err
			}
			offsets[at] = offset
		}
		return map[string]any{"offsets": offsets}, nil
	case "group":
		share := &Share{wanted: request.StopAfter, partitions: map[int32]*[3]int64{}}
		err := client.Group(ctx, request, share)
		return map[string]any{"partitions": share.partitions}, err
	case "topics":
		topics, err := client.Topics(ctx, request)
		return map[string]any{"topics": topics}, err
	}
	return nil, fmt.Errorf("no such action: %q", request.Action)
}

// Seeds are the servers to begin with.
func (r *Request) Seeds() []string { return strings.Split(r.Servers, ",") }

// TLS is the client's side of TLS, nil if there is none.
func (r *Request) TLS() (*tls.Config, error) {
	if r.Security.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(r.Security.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", r.Security.CA)
	}
	return &tls.Config{RootCAs: roots}, nil
}
