package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner"
)

// ahead is the leader of a stream of which the server that is read from lacks the end.
type ahead struct{ jetstream.Stream }

func (a ahead) Info(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := a.Stream.Info(ctx, o...)
	if err == nil {
		info.State.LastSeq++
	}
	return info, err
}

// TestNewestLeavesNobodyOut reads the records from a server that is behind: an authority
// would not be trusted any more of which somebody has a certificate.
func TestNewestLeavesNobodyOut(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	r := &provisioner.Record{Schema: provisioner.RecordSchema, Identity: "web1.example.net", State: provisioner.StateRetired, Attempt: "a", UpdatedAt: time.Now()}
	if _, err := s.Put(ctx, r, 0); err != nil {
		t.Fatal(err)
	}
	read := func() (n int, err error) {
		err = s.Newest(ctx, func(*provisioner.Record) error { n++; return nil })
		return n, err
	}
	if n, err := read(); n != 1 || err != nil {
		t.Errorf("%d records, %v, want 1", n, err)
	}
	s.nodes = ahead{s.nodes}
	if _, err := read(); err == nil || !strings.Contains(err.Error(), "sequence 1 of 2") {
		t.Errorf("from a server that is behind: %v", err)
	}
}
