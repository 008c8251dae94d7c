package journal

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"muster/provisioner"
)

// FuzzRead checks that no file panics the journal, that what it reads passes
// Check, and that its entries read the same once written again.
func FuzzRead(f *testing.F) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var all []byte
	for _, e := range []*provisioner.Revocation{
		{Schema: provisioner.RevocationSchema, ID: "1", Kind: provisioner.RevokedToken, At: at, By: "anna", Why: "lost\n", Token: "00112233445566778899aabbccddeeff"},
		{Schema: provisioner.RevocationSchema, ID: "2", Kind: provisioner.RevokedNode, At: at, Node: "web1.example.net"},
		{Schema: provisioner.RevocationSchema, ID: "3", Kind: provisioner.RetiredNode, At: at, Node: "web1.example.net"},
	} {
		b, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(b, '\n'))
		all = append(append(all, b...), '\n')
	}
	f.Add(all)
	f.Add(all[:len(all)-5])
	f.Add([]byte(`{"from":{"installation":"i","claims":3,"at":"2026-03-01T12:00:00Z"}}` + "\n" + `{"backup":{"id":"b","at":"2026-03-01T12:00:00Z"}}` + "\n"))
	f.Add([]byte(`{"claims":{"tid":"00112233445566778899aabbccddeeff","at":4,"entry":{"schema":1,"claims":[{"key":"k","identity":"web1","attempt":"a","at":"2026-03-01T12:00:00Z"}]}}}` + "\n"))
	f.Add([]byte(`{"owner":{"provisioner":"p1","journal":"j1","at":"2026-03-01T12:00:00Z"}}` + "\n" + `{"joined":{"provisioner":"p2","journal":"j2","at":"2026-03-01T12:00:00Z"}}` + "\n"))
	f.Add([]byte(`{"alone":{"at":"2026-03-01T12:00:00Z"}}` + "\n"))
	f.Add([]byte(`{"takeover":{"identity":"web1.example.net","key":"k","reason":"grant","at":"2026-03-01T12:00:00Z"}}` + "\n"))
	f.Add([]byte("\n"))
	f.Add([]byte("{} {}\n"))
	f.Add(bytes.Repeat([]byte{0}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var entries []*Line
		size, torn, err := read(bytes.NewReader(b), "journal", func(l *Line) error { entries = append(entries, l); return nil })
		if err != nil {
			if size != 0 || torn != 0 {
				t.Fatalf("read = %d, %d beside the error", size, torn)
			}
			return
		}
		if size+torn != int64(len(b)) || size > 0 && b[size-1] != '\n' {
			t.Fatalf("%d whole and %d torn bytes of %d", size, torn, len(b))
		}
		var again []byte
		for _, e := range entries {
			if err := e.check(); err != nil {
				t.Fatal(err)
			}
			line, err := json.Marshal(e)
			if err != nil {
				return // a year beyond 9999, which no entry of ours has
			}
			again = append(append(again, line...), '\n')
		}
		var twice []byte
		if _, _, err := read(bytes.NewReader(again), "journal", func(l *Line) error {
			line, err := json.Marshal(l)
			twice = append(append(twice, line...), '\n')
			return err
		}); err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("round trip: %s became %s, %v", again, twice, err)
		}
	})
}
