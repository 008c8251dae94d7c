package bench

import (
	"encoding/json"
	"testing"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// TestTemplate compares the requests that are put together with those that the
// protocol's own encoder makes.
func TestTemplate(t *testing.T) {
	t.Parallel()
	for _, size := range []int{minFacts, 2048, 20480} {
		facts := makeFacts(size)
		if !json.Valid(facts) || len(facts) > size+len(marks[holeIdentity]) || len(facts) < size-100 {
			t.Errorf("facts of %d bytes, valid %v, want %d", len(facts), json.Valid(facts), size)
		}
		tm, err := newTemplate("a.b.c", facts)
		if err != nil {
			t.Fatal(err)
		}
		s, err := simnode.New("n1.example.net", "a.b.c")
		if err != nil {
			t.Fatal(err)
		}
		n := &node{identity: s.Identity, boot: s.Boot, csr: s.CSR}
		r := s.Request()
		r.Agent, r.Facts = "bench", json.RawMessage(replaceMark(facts, n.identity))
		want, err := wire.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := tm.request(nil, n, r.ID); string(got) != string(want) {
			t.Errorf("request\n%s, want\n%s", got, want)
		}
	}
}
