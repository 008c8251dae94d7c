package provisioner

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sameBrief reports whether a record goes the fast way, and fails the test unless
// it then says what encoding/json says.
func sameBrief(t *testing.T, record []byte) bool {
	t.Helper()
	fast, ok := scanBrief(record)
	if !ok {
		return false
	}
	var slow brief
	if err := json.Unmarshal(record, &slow); err != nil {
		t.Errorf("%s is read, although: %v", record, err)
		return true
	}
	if diff := cmp.Diff(slow, fast); diff != "" {
		t.Errorf("%s: -encoding/json +scanned\n%s", record, diff)
	}
	return true
}

// TestBriefsAreRead: what enrolling writes is read the fast way, and as the record
// says it itself; other records are read, too.
func TestBriefsAreRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit func(*Record)
		fast bool
	}{
		"full":        {func(r *Record) { r.Terms = json.RawMessage(`{"a":[1,{"b":null}],"c":{},"d":[],"e":true}`) }, true},
		"offer":       {func(r *Record) { r.Current, r.State, r.Terms = nil, StateEnrolled, nil }, true},
		"no facts":    {func(r *Record) { r.Facts, r.Terms = nil, nil }, true},
		"superseded":  {func(r *Record) { r.Superseded, r.Terms = []RevokedCertificate{{Serial: "1a"}, {Serial: "2b"}}, nil }, true},
		"odd fact":    {func(r *Record) { r.Facts, r.Terms = Facts{{"city", "Zürich"}}, nil }, false},
		"small":       {func(r *Record) { *r = Record{Schema: RecordSchema, State: StateRetired, Lineage: []string{}} }, true},
		"escape":      {func(r *Record) { r.Agent, r.Terms = `a "b"`, nil }, false},
		"not ASCII":   {func(r *Record) { r.Agent, r.Terms = "é", nil }, false},
		"terms":       {func(*Record) {}, false},
		"by operator": {func(r *Record) { r.Operator, r.Terms = &Cause{By: "me", Why: "so"}, nil }, false},
		"cloned":      {func(r *Record) { r.Cloned, r.Terms = &Cloned{}, nil }, false},
	} {
		r := fullRecord()
		r.Next.NotAfter = r.Next.NotAfter.Add(time.Minute)
		tt.edit(r)
		b, err := r.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if fast := sameBrief(t, b); fast != tt.fast {
			t.Errorf("%s: fast %v, want %v: %s", name, fast, tt.fast, b)
		}
		got, err := DecodeBrief(b)
		if diff := cmp.Diff(r.Brief(), got); diff != "" || err != nil {
			t.Errorf("%s: %v, -record +decoded\n%s", name, err, diff)
		}
	}
}

// TestBriefsOfBrokenRecords changes records at random: the fast way takes nothing
// that encoding/json takes otherwise.
func TestBriefsOfBrokenRecords(t *testing.T) {
	t.Parallel()
	r := fullRecord()
	r.Superseded = []RevokedCertificate{{Serial: "1a"}}
	r.Terms, r.Current.DER, r.Next.DER = json.RawMessage(`{"a":[1,{"b":null}],"c":{},"d":[],"e":true}`), []byte{1}, []byte{1}
	whole, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	bits := []string{`"`, `{`, `}`, `[`, `]`, `,`, `:`, `0`, `-`, `.`, `\`, ` `, "\n", "null", `"State":"x",`, `"state":"x",`, `"a":{},`, `"facts":{},`, `"facts":{"b":"1","a":"2"},`, `"facts":null,`, `"superseded":[],`, `"superseded":[{}],`, `"superseded":null,`, "\xff", "é", `01`, `1e3`}
	taken, tries := 0, 50_000
	if testing.Short() {
		tries = 10_000
	}
	for range tries {
		b := append([]byte(nil), whole...)
		for range 1 + rand.IntN(2) {
			at := rand.IntN(len(b))
			to := min(len(b), at+rand.IntN(4))
			b = append(append(append([]byte(nil), b[:at]...), bits[rand.IntN(len(bits))]...), b[to:]...)
		}
		if sameBrief(t, b) {
			taken++
		}
	}
	if taken == 0 {
		t.Error("nothing was taken")
	}
}

func BenchmarkDecodeBrief(b *testing.B) {
	encoded := func(facts Facts) []byte {
		r := fullRecord()
		r.Terms, r.Facts = nil, facts
		record, err := r.Encode()
		if err != nil {
			b.Fatal(err)
		}
		return record
	}
	for name, record := range map[string][]byte{"scanned": encoded(fullRecord().Facts), "no facts": encoded(nil)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeBrief(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	record := encoded(fullRecord().Facts)
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			var r brief
			if err := json.Unmarshal(record, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
