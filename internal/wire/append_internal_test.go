package wire

import (
	"bytes"
	"encoding/json"
	"testing"
)

// TestEncodeSealed compares envelopes with those of encoding/json.
func TestEncodeSealed(t *testing.T) {
	t.Parallel()
	for n := range 100 {
		for _, e := range []Envelope{
			{Key: "Zm9vYmFyYmF6cXV4", Encapsulated: bytes.Repeat([]byte{0xfb}, 32), Ciphertext: bytes.Repeat([]byte{byte(n), 0xff}, n+1)},
			{Ciphertext: bytes.Repeat([]byte{byte(n)}, n+1)},
		} {
			e.Version, e.Sealed = Version, true
			want, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			got := EncodeSealed(e.Key, e.Encapsulated, e.Ciphertext)
			if !bytes.Equal(got, want) || cap(got) > len(got)+64 {
				t.Errorf("EncodeSealed = %s (room for %d), want %s", got, cap(got), want)
			}
			if _, ok := scanSealed(got); !ok {
				t.Errorf("%s is not scanned", got)
			}
		}
	}
}
