package natsapi_test

import (
	"os"
	"path/filepath"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
)

// FuzzRequests sends bytes to a whole provisioner over a real connection, and
// expects a reply to each that says one thing.
func FuzzRequests(f *testing.F) {
	files, err := filepath.Glob("../../../internal/wire/testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no golden files", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
		f.Add(b, true)
	}
	fleet := testbed.New(f, testbed.Options{Quiet: true})
	n := fleet.Node("web1.example.net")
	good, err := wire.Encode(n.Request())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, false)
	nc := fleet.Dial(n.Token)
	f.Fuzz(func(t *testing.T, b []byte, applied bool) {
		if len(b) > wire.MaxMessageBytes {
			return // the broker does not take it
		}
		subject := wire.SubjectEnroll
		if applied {
			subject = wire.SubjectApplied
		}
		m, err := nc.RequestWithContext(t.Context(), subject, b)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		r, err := wire.DecodeReply(m.Data)
		if err != nil {
			t.Fatalf("%s: the reply %q is none: %v", subject, m.Data, err)
		}
		if r.Refusal != nil && wire.MeaningOf(r.Refusal.Code).Code != r.Refusal.Code {
			t.Fatalf("refused with the unknown code %q", r.Refusal.Code)
		}
	})
}
