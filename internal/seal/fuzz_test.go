package seal_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/seal"
	"muster/internal/wire"
)

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
