package bench

import (
	"reflect"
	"strings"
	"testing"

	"muster/internal/wire"
)

// replies are such as a provisioner sends.
func replies(tb testing.TB) [][]byte {
	tb.Helper()
	pem := "-----BEGIN CERTIFICATE-----\n" + strings.Repeat(strings.Repeat("Aa0+", 16)+"\n", 10) + "-----END CERTIFICATE-----\n"
	enrolled := &wire.Enrolled{Serial: "0a1b", Certificate: pem + pem, CA: pem, Digest: strings.Repeat("ab", 32),
		Files: wire.Files{Configuration: map[string]string{"brokers": "nats://broker:4222", "größe": "a\tb \"quoted\" \u2028<&>", "empty": ""}}}
	policies := *enrolled
	policies.ActionPolicies = map[string]string{"a": "b"}
	var all [][]byte
	for _, r := range []*wire.Reply{
		{ID: wire.NewID(), Installation: "i", Enrolled: enrolled},
		{ID: wire.NewID(), Installation: "i", Enrolled: &policies},
		{ID: wire.NewID(), Installation: "i", Enrolled: &wire.Enrolled{}},
		{ID: wire.NewID(), Installation: "i", Applied: &wire.Accepted{Serial: "0a1b"}},
		{ID: wire.NewID(), Installation: "i", Refusal: &wire.Refusal{Code: wire.CodeBusy, Message: "busy", RetryAfter: 500}},
		{Installation: "i", Refusal: &wire.Refusal{Code: wire.CodeBadRequest, Message: "no"}},
	} {
		b, err := wire.Encode(r)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// FuzzDecodeReply compares the fast decoder with the protocol's own: it must
// read the same out of whatever that accepts. What that refuses, it may only
// accept where strictness is about something that no provisioner does: members
// that come twice.
func FuzzDecodeReply(f *testing.F) {
	for _, b := range replies(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, werr := wire.DecodeReply(b)
		got, err := decodeReply(b)
		if werr == nil && (err != nil || !reflect.DeepEqual(got, want)) {
			t.Errorf("decoded %+v, %v, want %+v from %s", got, err, want, b)
		}
	})
}

func BenchmarkDecodeReply(b *testing.B) {
	reply := replies(b)[0]
	for name, decode := range map[string]func([]byte) (*wire.Reply, error){"wire": wire.DecodeReply, "bench": decodeReply} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode(reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
