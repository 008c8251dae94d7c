package wire

import (
	"bytes"
	"encoding/json"
	"testing"
)

// encodeSlowly is [Encode] with reflection, for everything.
func encodeSlowly(t *testing.T, message any) []byte {
	t.Helper()
	body, err := marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	b, err := marshal(Envelope{Version: Version, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

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

// FuzzAppendReply compares replies that were written without reflection with
// those that encoding/json writes.
func FuzzAppendReply(f *testing.F) {
	for _, s := range []string{"", "a", "-----BEGIN CERTIFICATE-----\nMIIB\n", "\x00\x01\b\f\t\r\x1f\x7f\"\\/<>&", "é\u2028\u2029\ufffd\U0001f600", "\xff\xc0\x80\xed\xa0\x80", "\xe2\x80"} {
		for shape := range byte(32) {
			f.Add(s, "k"+s, shape)
		}
	}
	f.Fuzz(func(t *testing.T, text, key string, shape byte) {
		r := &Reply{ID: text, Installation: key}
		if shape&1 != 0 {
			r.Enrolled = &Enrolled{Serial: text, Certificate: key, CA: text, Digest: key}
			for i, m := range []*map[string]string{&r.Enrolled.Configuration, &r.Enrolled.ActionPolicies, &r.Enrolled.OPAPolicies} {
				if shape&(2<<i) != 0 {
					*m = map[string]string{key: text, text: key, "z": "", "a": text}
				}
			}
			if shape&16 != 0 {
				r.Enrolled.OPAPolicies = map[string]string{}
			}
		} else {
			r.Applied = &Accepted{Serial: text}
		}
		got, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := encodeSlowly(t, r); !bytes.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
