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
	f.Add(uint8(seal.PurposeEnroll), e.Key, e.Encapsulated, e.Ciphertext)
	f.Add(uint8(seal.PurposeApplied), e.Key, e.Encapsulated, e.Ciphertext)
	f.Add(uint8(0), "", []byte(nil), []byte(nil))
	f.Add(uint8(seal.PurposeConnect), testKey(f, "a").Public().ID(), make([]byte, 32), make([]byte, 304))
	f.Fuzz(func(t *testing.T, purpose uint8, key string, enc, ct []byte) {
		plaintext, reply, err := o.Open(seal.Purpose(purpose), &seal.Sealed{Key: key, Encapsulated: enc, Ciphertext: ct})
		if err != nil {
			if plaintext != nil || reply != nil {
				t.Fatal("a result beside an error")
			}
			return
		}
		if reply == nil || len(ct) != 32+seal.Padded(len(plaintext))+16 {
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
	o, k := testOpener(f, "a"), testSession(f, "a")
	f.Add([]byte{})
	f.Add(byHand("question"))
	f.Add(append([]byte{0, 0, 0, 76}, secretToken...))
	f.Add(append([]byte{255, 255, 255, 255}, secretToken...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > wire.MaxMessageBytes {
			return
		}
		b = append(b, make([]byte, (256-len(b)%256)%256)...) // another length is refused unopened
		s, err := k.SealUnpadded(seal.PurposeConnect, b)
		if err != nil {
			t.Fatal(err)
		}
		plaintext, reply, err := o.Open(seal.PurposeConnect, s)
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

// FuzzOpenToken feeds the opener texts that a connection may present, and tokens
// with these texts in them.
func FuzzOpenToken(f *testing.F) {
	o, k := testOpener(f, "golden"), testKey(f, "golden").Public()
	p := goldenPresented(f)
	f.Add(p.Token, p.Name, p.Signature, p.Nonce)
	f.Add(p.Token, p.Name, p.Signature, "")
	f.Add(secretToken, "", "", "")
	f.Add("muster-sealed-v1."+k.ID()+"..", "", "", "x")
	f.Fuzz(func(t *testing.T, s, name, signature, nonce string) {
		token, err := o.OpenToken(seal.Presented{Token: s, Name: name, Signature: signature, Nonce: nonce})
		if err != nil && token != "" {
			t.Fatal("a result beside an error")
		}
		if err == nil {
			if !strings.Contains(s, "."+name+".") || nonce != p.Nonce {
				t.Fatalf("%q opens on the connection of %q, whose nonce is %q", s, name, nonce)
			}
			sealAgain(t, o, k, token)
		}
		if len(s) > wire.MaxMessageBytes {
			return
		}
		session := testSession(t, "golden")
		sealed, _, err := session.Seal(seal.PurposeConnect, []byte(s))
		if err != nil {
			t.Fatal(err)
		}
		mine := presented(t, session)
		mine.Token = tokenText(sealed)
		if token, err = o.OpenToken(mine); err != nil {
			if token != "" {
				t.Fatal("a result beside an error")
			}
			return
		}
		if string(token) != s {
			t.Fatalf("%q became %q", s, string(token))
		}
		sealAgain(t, o, k, token)
	})
}

// sealAgain checks that what was accepted can be sealed and means the same.
func sealAgain(t *testing.T, o *seal.Opener, k seal.PublicKey, token wire.Secret) {
	t.Helper()
	s, err := seal.NewSession(k, token)
	if err != nil {
		t.Fatalf("our own token is refused: %v", err)
	}
	if again, err := o.OpenToken(presented(t, s)); err != nil || again != token {
		t.Fatalf("%q became %q, %v", string(token), string(again), err)
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
		if _, err := seal.NewSession(k, "x"); err != nil {
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
