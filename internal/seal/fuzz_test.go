package seal_test

import (
	"testing"

	"muster/internal/seal"
	"muster/internal/wire"
)

// FuzzOpenRequest starts from the bytes on the network.
func FuzzOpenRequest(f *testing.F) {
	o := testOpener(f, "golden")
	f.Add(readGolden(f, goldenEnroll))
	f.Add(readGolden(f, goldenReply))
	f.Add([]byte(`{"v":1,"sealed":true,"key":"x","enc":"","ct":"AA=="}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := wire.Open(b, wire.MaxMessageBytes)
		if err != nil {
			return
		}
		for _, purpose := range []seal.Purpose{seal.PurposeEnroll, seal.PurposeApplied} {
			message, reply, err := o.Open(purpose, e)
			if (err != nil) != (message == nil) || (err != nil) != (reply == nil) {
				t.Fatalf("message %q, reply %v, error %v", message, reply, err)
			}
		}
	})
}
