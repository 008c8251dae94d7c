package wire_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"muster/internal/wire"
)

// benchFacts returns facts of about n bytes, as machines have them.
func benchFacts(n int) json.RawMessage {
	var b strings.Builder
	b.WriteString(`{"os":{"family":"Debian","release":{"full":"12.5","major":12},"selinux":false}`)
	for i := 0; b.Len() < n-60; i++ {
		fmt.Fprintf(&b, `,"interface%d":{"ip":"192.0.2.%d","mtu":1500,"mac":"02:00:5e:00:53:%02x","up":true}`, i, i%256, i%256)
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}

// BenchmarkDecode decodes what the provisioner gets, once as our nodes spell it
// and once in another way, a blank before it.
func BenchmarkDecode(b *testing.B) {
	token := wire.Secret(strings.Repeat("eyJhbGciOiJSUzI1NiJ9", 50))
	for _, n := range []int{2 << 10, 20 << 10} {
		plain, err := wire.Encode(&wire.EnrollRequest{ID: wire.NewID(), Identity: "web1.example.net", Token: token, CSR: make([]byte, 300), Facts: benchFacts(n), Agent: "muster-server 1.0", Boot: wire.NewID()})
		if err != nil {
			b.Fatal(err)
		}
		for how, message := range map[string][]byte{"ours": plain, "foreign": append([]byte(" "), plain...)} {
			b.Run(fmt.Sprintf("enroll/facts=%dK/%s", n>>10, how), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := wire.DecodeEnroll(message); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	plain, err := wire.Encode(&wire.Applied{ID: wire.NewID(), Identity: "web1.example.net", Serial: strings.Repeat("a", 32), Digest: strings.Repeat("b", 64), Signature: make([]byte, 71)})
	if err != nil {
		b.Fatal(err)
	}
	for how, message := range map[string][]byte{"ours": plain, "foreign": append([]byte(" "), plain...)} {
		b.Run("applied/"+how, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.DecodeApplied(message); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncode encodes what the provisioner answers. The refusal is written
// with reflection.
func BenchmarkEncode(b *testing.B) {
	pem := strings.Repeat(strings.Repeat("M", 64)+"\n", 14)
	for name, r := range map[string]*wire.Reply{
		"enrolled": {ID: wire.NewID(), Installation: wire.NewID(), Enrolled: &wire.Enrolled{Serial: strings.Repeat("a", 32), Certificate: pem + pem, CA: pem,
			Files: wire.Files{Configuration: map[string]string{"identity": "web1.example.net", "provision": "false", "brokers": "nats://broker.example.net:4222"}}, Digest: strings.Repeat("b", 64)}},
		"applied": {ID: wire.NewID(), Installation: wire.NewID(), Applied: &wire.Accepted{Serial: strings.Repeat("a", 32)}},
		"refusal": {ID: wire.NewID(), Installation: wire.NewID(), Refusal: &wire.Refusal{Code: wire.CodeBusy, Message: wire.MeaningOf(wire.CodeBusy).Public, RetryAfter: 1000}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Encode(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpenSealed decodes the envelope of a sealed request.
func BenchmarkOpenSealed(b *testing.B) {
	message := fmt.Appendf(nil, `{"v":1,"sealed":true,"key":"0123456789abcdef","enc":"%s=","ct":"%s"}`, strings.Repeat("A", 43), strings.Repeat("AbC0", 1500))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Open(message, wire.MaxMessageBytes); err != nil {
			b.Fatal(err)
		}
	}
}
