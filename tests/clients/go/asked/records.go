package asked

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Header is a header of a record.
type Header struct {
	Name  string
	Value []byte
}

// Record is what a client hands out; a key or value that is nil is null.
type Record struct {
	Partition  int32
	Offset     int64
	TimeMs     int64
	Key, Value []byte
	Headers    []Header
}

// Reading hashes the records of partitions, each up to its end.
type Reading struct {
	partitions map[int32]*partition
	answers    int64 // that the client had when it last handed out a record; -1: ask it
}

type partition struct {
	end, position, count int64
	hash                 hash.Hash
}

func newReading(ends map[int32]int64) *Reading {
	reading := &Reading{partitions: map[int32]*partition{}, answers: -1}
	for number, end := range ends {
		reading.partitions[number] = &partition{end: end, hash: sha256.New()}
	}
	return reading
}

// Take counts a record, unless it is behind the end.
func (r *Reading) Take(record Record) {
	r.answers = -1
	into := r.partitions[record.Partition]
	if record.Offset < into.end {
		into.count++
		into.hash.Write(record.bytes())
	}
	r.At(record.Partition, record.Offset+1)
}

// At says where the client is in a partition.
func (r *Reading) At(number int32, position int64) {
	into := r.partitions[number]
	into.position = max(into.position, position)
}

// Done says that the client has reached all ends.
func (r *Reading) Done() bool {
	for _, each := range r.partitions {
		if each.position < each.end {
			return false
		}
	}
	return true
}

// Silent says that so many answers to fetches have come since the last record: a client that does
// not tell its position has reached the end. `answers` are those until now.
func (r *Reading) Silent(answers, enough int64) bool {
	if r.answers < 0 {
		r.answers = answers
	}
	return answers-r.answers >= enough
}

func (r *Reading) answer() map[int32][2]any {
	answer := map[int32][2]any{}
	for number, each := range r.partitions {
		answer[number] = [2]any{each.count, hex.EncodeToString(each.hash.Sum(nil))}
	}
	return answer
}

func (r *Record) bytes() []byte {
	data := binary.BigEndian.AppendUint64(nil, uint64(r.Offset))
	data = binary.BigEndian.AppendUint64(data, uint64(r.TimeMs))
	data = nullable(nullable(data, r.Key), r.Value)
	data = binary.BigEndian.AppendUint32(data, uint32(len(r.Headers)))
	for _, header := range r.Headers {
		data = nullable(nullable(data, []byte(header.Name)), header.Value)
	}
	return data
}

func nullable(to, data []byte) []byte {
	if data == nil {
		return binary.BigEndian.AppendUint32(to, ^uint32(0))
	}
	return append(binary.BigEndian.AppendUint32(to, uint32(len(data))), data...)
}

// Share is what a member of a group reads, until it has as many records as it wants.
type Share struct {
	wanted, taken int
	partitions    map[int32]*[3]int64 // records, first offset, last offset
}

// Left is how many records the member still wants.
func (s *Share) Left() int { return s.wanted - s.taken }

// Take counts a record; false if the member has enough without it.
func (s *Share) Take(partition int32, offset int64) bool {
	if s.Left() <= 0 {
		return false
	}
	s.taken++
	into := s.partitions[partition]
	if into == nil {
		into = &[3]int64{0, offset, offset}
		s.partitions[partition] = into
	}
	into[0]++
	into[2] = offset
	return true
}

// Ends are the offsets behind the records taken, which the member commits.
func (s *Share) Ends() map[int32]int64 {
	ends := map[int32]int64{}
	for number, each := range s.partitions {
		ends[number] = each[2] + 1
	}
	return ends
}
