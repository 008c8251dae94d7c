package seal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/seal"
	"muster/internal/wire"
)

// FuzzOpen feeds the opener what anybody can send it.
func FuzzOpen(f *testing.F) {
	o := testOpener(f, "golden", "a")
	e, err := wire.Open(readGolden(f, goldenEnroll), wire.MaxMessageBytes)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(seal.PurposeEnroll), e.Key, e.Encapsulated, e.Ciphertext, []byte(nil))
	f.Add(uint8(seal.PurposeApplied), e.Key, e.Encapsulated, e.Ciphertext, []byte("x"))
	f.Add(uint8(0), "", []byte(nil), []byte(nil), []byte(nil))
	f.Add(uint8(seal.PurposeConnect), testKey(f, "a").Public().ID(), make([]byte, 32), make([]byte, 272), []byte(nil))
	f.Fuzz(func(t *testing.T, purpose uint8, key string, enc, ct, aad []byte) {
		plaintext, reply, err := o.Open(seal.Purpose(purpose), &seal.Sealed{Key: key, Encapsulated: enc, Ciphertext: ct}, aad)
		if err != nil {
			if plaintext != nil || reply != nil {
				t.Fatal("a result beside an error")
			}
			return
		}
		if reply == nil || len(ct) != seal.Padded(len(plaintext))+16 {
			t.Fatalf("%d bytes opened as %d", len(ct), len(plaintext))
		}
	})
}

// FuzzOpenRequest does the same from the bytes of the network on.
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
		for _, open := range []func(*wire.Envelope) ([]byte, *seal.ReplySealer, error){o.OpenRequest, o.OpenApplied} {
			message, reply, err := open(e)
			if (err != nil) != (message == nil) || (err != nil) != (reply == nil) {
				t.Fatalf("message %q, reply %v, error %v", message, reply, err)
			}
		}
	})
}

// FuzzOpened seals what was fuzzed, for the public key is public: hostile bytes
// arrive well sealed.
func FuzzOpened(f *testing.F) {
	o, k := testOpener(f, "a"), testKey(f, "a").Public()
	aad := []byte("muster-sealed-v1." + k.ID())
	f.Add([]byte{})
	f.Add(byHand("question"))
	f.Add(append([]byte{0, 0, 0, 132}, nkey+secretToken...))
	f.Add(append([]byte{255, 255, 255, 255}, nkey...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > wire.MaxMessageBytes {
			return
		}
		b = append(b, make([]byte, (256-len(b)%256)%256)...) // another length is refused unopened
		s, err := k.SealUnpadded(seal.PurposeConnect, b, aad)
		if err != nil {
			t.Fatal(err)
		}
		plaintext, reply, err := o.Open(seal.PurposeConnect, s, aad)
		if err != nil {
			if plaintext != nil || reply != nil {
				t.Fatal("a result beside an error")
			}
			return
		}
		again := make([]byte, seal.Padded(len(plaintext)))
		seal.Pad(again, plaintext)
		if !bytes.Equal(again, b) {
			t.Fatalf("two encodings of %q", plaintext)
		}
	})
}

// FuzzUnpad is the same without the cryptography, so that it gets far.
func FuzzUnpad(f *testing.F) {
	f.Add([]byte{})
	f.Add(byHand("question"))
	f.Add(append(byHand("question"), make([]byte, 256)...))
	f.Add(append([]byte{255, 255, 255, 255}, make([]byte, 252)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		plaintext, ok := seal.Unpad(b)
		if !ok {
			if plaintext != nil {
				t.Fatal("a result beside a refusal")
			}
			return
		}
		again := make([]byte, seal.Padded(len(plaintext)))
		seal.Pad(again, plaintext)
		if !bytes.Equal(again, b) {
			t.Fatalf("two encodings of %q", plaintext)
		}
	})
}

// FuzzOpenToken feeds the opener texts, and tokens with these texts in them.
func FuzzOpenToken(f *testing.F) {
	o, k := testOpener(f, "golden"), testKey(f, "golden").Public()
	f.Add(string(readGolden(f, goldenToken)))
	f.Add(secretToken)
	f.Add("muster-sealed-v1." + k.ID() + "..")
	f.Add(nkey + secretToken)
	f.Fuzz(func(t *testing.T, s string) {
		token, gotNkey, err := o.OpenToken(s)
		if err != nil && (token != "" || gotNkey != "") {
			t.Fatal("a result beside an error")
		}
		if err == nil {
			sealAgain(t, o, k, token, gotNkey)
		}
		if len(s) > wire.MaxMessageBytes {
			return
		}
		aad := "muster-sealed-v1." + k.ID()
		sealed, _, err := k.Seal(seal.PurposeConnect, []byte(s), []byte(aad))
		if err != nil {
			t.Fatal(err)
		}
		token, gotNkey, err = o.OpenToken(tokenText(sealed))
		if err != nil {
			if token != "" || gotNkey != "" {
				t.Fatal("a result beside an error")
			}
			return
		}
		if gotNkey+string(token) != s {
			t.Fatalf("%q became %q and %q", s, gotNkey, string(token))
		}
		sealAgain(t, o, k, token, gotNkey)
	})
}

// sealAgain checks that what was accepted can be sealed and means the same.
func sealAgain(t *testing.T, o *seal.Opener, k seal.PublicKey, token wire.Secret, nkey string) {
	t.Helper()
	s, err := seal.SealToken(k, token, nkey)
	if err != nil {
		t.Fatalf("our own token is refused: %v", err)
	}
	token2, nkey2, err := o.OpenToken(s)
	if err != nil || token2 != token || nkey2 != nkey {
		t.Fatalf("%q and %q became %q and %q, %v", string(token), nkey, string(token2), nkey2, err)
	}
}

// FuzzReplyOpen feeds a waiting node what anybody can send it.
func FuzzReplyOpen(f *testing.F) {
	_, sealer, opener := goldenExchange(f)
	e, err := wire.Open(readGolden(f, goldenReply), seal.MaxReplyBytes)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(e.Ciphertext)
	f.Add([]byte{})
	f.Add(make([]byte, 304))
	f.Add(make([]byte, 48))
	f.Fuzz(func(t *testing.T, frame []byte) {
		plaintext, err := opener.Open(frame)
		if err != nil {
			if plaintext != nil {
				t.Fatal("a result beside an error")
			}
			return
		}
		again, err := sealer.Seal(plaintext)
		if err != nil || len(again) != len(frame) {
			t.Fatalf("frame of %d bytes became %d, %v", len(frame), len(again), err)
		}
	})
}

// FuzzDecodeReply feeds it messages, and sealed replies with these bytes in
// them, as a provisioner of another version might send.
func FuzzDecodeReply(f *testing.F) {
	_, sealer, opener := goldenExchange(f)
	f.Add(readGolden(f, goldenReply))
	f.Add(readGolden(f, goldenEnroll))
	f.Add([]byte(`{"v":1,"sealed":false,"body":{"id":"x","installation":"","applied":{"serial":"1"}}}`))
	f.Add([]byte(`{"v":1,"sealed":false,"body":{"id":"","installation":"","refusal":{"code":"busy","message":"","retry_after_ms":-1}}}`))
	f.Add([]byte(`{"v":2,"sealed":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(r *wire.Reply, err error) {
			t.Helper()
			if (r == nil) != (err != nil) {
				t.Fatalf("reply %v, error %v", r, err)
			}
			if err != nil {
				return
			}
			again, err := sealer.EncodeReply(r)
			if err != nil {
				t.Fatalf("our own encoding: %v", err)
			}
			r2, err := opener.DecodeReply(again)
			if err != nil || !cmp.Equal(r, r2) {
				t.Fatalf("%+v became %+v, %v", r, r2, err)
			}
		}
		check(opener.DecodeReply(b))
		if len(b) > wire.MaxReplyBytes {
			return
		}
		frame, err := sealer.Seal(b)
		if err != nil {
			t.Fatal(err)
		}
		check(opener.DecodeReply(replyText(t, frame)))
	})
}

// FuzzParsePublicKey reads keys as they stand in tokens.
func FuzzParsePublicKey(f *testing.F) {
	f.Add(testKey(f, "a").Public().String())
	f.Add(strings.Repeat("A", 43))
	f.Add(strings.Repeat("_", 43))
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := seal.ParsePublicKey(s)
		if err != nil {
			if k != (seal.PublicKey{}) {
				t.Fatal("a result beside an error")
			}
			return
		}
		if k.String() != s {
			t.Fatalf("%q and %q are one key", s, k)
		}
		if _, _, err := k.Seal(seal.PurposeEnroll, []byte("x"), nil); err != nil {
			t.Fatalf("accepted key %q: %v", s, err)
		}
	})
}

// FuzzParsePrivateKey reads key files.
func FuzzParsePrivateKey(f *testing.F) {
	good, err := testKey(f, "a").MarshalPEM()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := seal.ParsePrivateKey(b)
		if (k == nil) != (err != nil) {
			t.Fatalf("key %v, error %v", k, err)
		}
		if err != nil {
			return
		}
		text, err := k.MarshalPEM()
		if err != nil {
			t.Fatal(err)
		}
		again, err := seal.ParsePrivateKey(text)
		if err != nil || again.Public() != k.Public() {
			t.Fatalf("%v became %v, %v", k.Public(), again, err)
		}
	})
}
