package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/seal"
	"muster/internal/wire"
)

const (
	secretToken = "eyJhbGciOiJFZERTQSJ9.eyJwdXJwb3NlIjoiY2hvcmlhX3Byb3Zpc2lvbmluZyJ9.c2lnbmF0dXJl"
	secretFact  = "a-fact-that-nobody-else-should-read"
	secretValue = "plugin.security.password-of-this-node"
)

func request() *wire.EnrollRequest {
	return &wire.EnrollRequest{
		ID: "f3VhqEUyQm6yXv2Vw0aJ9A", Identity: "web1.example.net", Token: secretToken, CSR: []byte("DER of the request"),
		Facts: json.RawMessage(`{"secret":"` + secretFact + `"}`), Agent: "muster-server 0.1.0", Boot: "4b7mS1WcT2GdX8QqYkz3Rw",
	}
}

func reply() *wire.Reply {
	return &wire.Reply{ID: "f3VhqEUyQm6yXv2Vw0aJ9A", Installation: "Qm9vdHN0cmFwcGVkSGVyZQ", Enrolled: &wire.Enrolled{
		Serial: "5b1f0c6de2a94c0f", Certificate: "PEM", CA: "PEM", Files: wire.Files{Configuration: map[string]string{"password": secretValue}}, Digest: "9f86",
	}}
}

func sendRequest(t testing.TB, m any) (raw []byte, e *wire.Envelope, opener *seal.ReplyOpener) {
	t.Helper()
	raw, opener, err := testSession(t, "a").Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	e, err = wire.Open(raw, wire.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	return raw, e, opener
}

// hides checks that a message shows no plain text, also not in base64.
func hides(t *testing.T, raw []byte, secrets ...string) {
	t.Helper()
	var e wire.Envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		for name, b := range map[string][]byte{"message": raw, "ciphertext": e.Ciphertext,
			"encapsulated key": e.Encapsulated} {
			if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s shows %q", name, secret)
			}
			for i := range 3 { // as base64 would have it, at each of its three places
				form := base64.StdEncoding.EncodeToString([]byte(secret[i:]))
				if bytes.Contains(b, []byte(form[:len(form)-4])) {
					t.Errorf("%s shows %q in base64", name, secret)
				}
			}
		}
	}
}

func TestEnrollSealed(t *testing.T) {
	t.Parallel()
	raw, e, opener := sendRequest(t, request())
	hides(t, raw, secretToken, secretFact, "web1.example.net", "DER of the request", "identity")
	message, sealer, err := testOpener(t, "a").Open(seal.PurposeEnroll, e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeEnroll(message)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(request(), got); d != "" {
		t.Errorf("request (-sent +opened):\n%s", d)
	}
	answer, err := sealer.EncodeReply(reply())
	if err != nil {
		t.Fatal(err)
	}
	hides(t, answer, secretValue, "5b1f0c6de2a94c0f", "f3VhqEUyQm6yXv2Vw0aJ9A", "configuration")
	decoded, err := opener.DecodeReply(answer)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(reply(), decoded); d != "" {
		t.Errorf("reply (-sent +opened):\n%s", d)
	}
	if _, err := wire.DecodeEnroll(raw); !errors.Is(err, wire.ErrSealed) {
		t.Errorf("a provisioner that opens nothing says %v, want %v", err, wire.ErrSealed)
	}
}

func TestAppliedSealed(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	applied := &wire.Applied{ID: "Zb0J", Identity: "web1.example.net", Serial: "5b1f", Digest: "9f86",
		Signature: []byte("signature")}
	raw, opener, err := testSession(t, "a").Encode(applied)
	if err != nil {
		t.Fatal(err)
	}
	hides(t, raw, "web1.example.net", "signature")
	e, err := wire.Open(raw, wire.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	if m, r, err := o.Open(seal.PurposeEnroll, e); !errors.Is(err, seal.ErrOpen) || m != nil || r != nil {
		t.Errorf("a confirmation opened as a request: %q, %v", m, err)
	}
	message, sealer, err := o.Open(seal.PurposeApplied, e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeApplied(message)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(applied, got); d != "" {
		t.Errorf("confirmation (-sent +opened):\n%s", d)
	}
	want := &wire.Reply{ID: "Zb0J", Applied: &wire.Accepted{Serial: "5b1f"}}
	answer, err := sealer.EncodeReply(want)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := opener.DecodeReply(answer)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, decoded); d != "" {
		t.Errorf("reply (-sent +opened):\n%s", d)
	}
	_, e, _ = sendRequest(t, request())
	if m, r, err := o.Open(seal.PurposeApplied, e); !errors.Is(err, seal.ErrOpen) || m != nil || r != nil {
		t.Errorf("a request opened as a confirmation: %q, %v", m, err)
	}
}

func TestRequestsThatDoNotOpen(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit func(*wire.Envelope)
		want error
	}{
		"as it is":             {func(*wire.Envelope) {}, nil},
		"plain":                {func(e *wire.Envelope) { *e = wire.Envelope{Version: 1, Body: json.RawMessage(`{}`)} }, seal.ErrPlain},
		"said to be plain":     {func(e *wire.Envelope) { e.Sealed = false }, seal.ErrPlain},
		"of a key not held":    {func(e *wire.Envelope) { e.Key = testKey(t, "b").Public().ID() }, seal.ErrUnknownKey},
		"of a very long key":   {func(e *wire.Envelope) { e.Key = strings.Repeat("k", 60_000) }, seal.ErrUnknownKey},
		"a reply's members":    {func(e *wire.Envelope) { e.Key, e.Encapsulated = "", nil }, seal.ErrOpen},
		"a byte of it altered": {func(e *wire.Envelope) { e.Ciphertext[100]++ }, seal.ErrOpen},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, e, _ := sendRequest(t, request())
			tt.edit(e)
			message, reply, err := testOpener(t, "a").Open(seal.PurposeEnroll, e)
			if !errors.Is(err, tt.want) || (err != nil) != (message == nil) || (err != nil) != (reply == nil) {
				t.Errorf("OpenRequest = %q, %v, %v; want %v", message, reply, err, tt.want)
			}
			if err != nil && len(err.Error()) > 300 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

func TestRepliesThatAreIgnored(t *testing.T) {
	t.Parallel()
	o := testOpener(t, "a")
	_, e, opener := sendRequest(t, request())
	_, sealer, err := o.Open(seal.PurposeEnroll, e)
	if err != nil {
		t.Fatal(err)
	}
	_, otherEnvelope, _ := sendRequest(t, request())
	_, otherSealer, err := o.Open(seal.PurposeEnroll, otherEnvelope)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(r *seal.ReplySealer, m any) []byte {
		b, err := r.EncodeReply(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	plain, err := wire.Encode(reply())
	if err != nil {
		t.Fatal(err)
	}
	frame, err := sealer.Seal(plain)
	if err != nil {
		t.Fatal(err)
	}
	envelope := func(e wire.Envelope) []byte {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	raw := func(text string) []byte {
		b, err := sealer.Seal([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return envelope(wire.Envelope{Version: 1, Sealed: true, Ciphertext: b})
	}
	tests := map[string]struct {
		b    []byte
		want error
	}{
		"its own":                     {envelope(wire.Envelope{Version: 1, Sealed: true, Ciphertext: frame}), nil},
		"a refusal":                   {encode(sealer, &wire.Reply{Refusal: &wire.Refusal{Code: wire.CodeBusy}}), nil},
		"plain":                       {plain, seal.ErrPlain},
		"a plain refusal":             {[]byte(`{"v":1,"sealed":false,"body":{"id":"","refusal":{"code":"denied","message":"x"}}}`), seal.ErrPlain},
		"sealed for another request":  {encode(otherSealer, reply()), seal.ErrOpen},
		"with a key":                  {envelope(wire.Envelope{Version: 1, Sealed: true, Key: "x", Ciphertext: frame}), seal.ErrOpen},
		"with an encapsulated key":    {envelope(wire.Envelope{Version: 1, Sealed: true, Encapsulated: []byte{1}, Ciphertext: frame}), seal.ErrOpen},
		"our own request":             {envelope(*e), seal.ErrOpen},
		"of another version":          {envelope(wire.Envelope{Version: 2, Sealed: true, Ciphertext: frame}), wire.ErrVersion},
		"no JSON":                     {[]byte("hello"), wire.ErrMessage},
		"empty":                       {nil, wire.ErrMessage},
		"too large":                   {make([]byte, seal.MaxReplyBytes+1), wire.ErrTooLarge},
		"sealed, no message in it":    {raw("hello"), wire.ErrMessage},
		"sealed, nothing in it":       {raw(""), wire.ErrMessage},
		"sealed, of no kind":          {raw(`{"v":1,"sealed":false,"body":{"id":"x","installation":""}}`), wire.ErrMessage},
		"sealed, of another version":  {raw(`{"v":2,"sealed":false,"body":{}}`), wire.ErrVersion},
		"sealed twice":                {raw(string(envelope(wire.Envelope{Version: 1, Sealed: true, Ciphertext: frame}))), wire.ErrSealed},
		"sealed, with unknown member": {raw(`{"v":1,"sealed":false,"body":{"id":"x","installation":"","applied":{"serial":"1"},"x":1}}`), wire.ErrMessage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := opener.DecodeReply(tt.b)
			if !errors.Is(err, tt.want) || (got == nil) != (err != nil) {
				t.Errorf("DecodeReply = %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// TestLargestRequest checks that the broker accepts sealed messages up to the documented limit.
func TestLargestRequest(t *testing.T) {
	t.Parallel()
	k := testSession(t, "a")
	if seal.MaxRequestBytes != 196_348 {
		t.Errorf("MaxRequestBytes = %d; correct its comment", seal.MaxRequestBytes)
	}
	plain := func(n int) string { // a message that is n bytes in its envelope
		return strings.Repeat("x", n-len(`{"v":1,"sealed":false,"body":""}`))
	}
	b, _, err := k.Encode(plain(seal.MaxRequestBytes))
	if err != nil || len(b) > wire.MaxMessageBytes || len(b) <= wire.MaxMessageBytes-350 { // 350: a block in base64
		t.Errorf("largest request: %d bytes, %v; want at most %d, and no room for a block more", len(b), err,
			wire.MaxMessageBytes)
	}
	if b, r, err := k.Encode(plain(seal.MaxRequestBytes + 1)); !errors.Is(err, wire.ErrTooLarge) || b != nil ||
		r != nil {
		t.Errorf("a byte more: %d bytes, %v", len(b), err)
	}
	full := request()
	full.Token = wire.Secret(strings.Repeat("t", wire.MaxTokenBytes))
	full.Facts = json.RawMessage(`{"a":"` + strings.Repeat("f", wire.MaxFactsBytes-8) + `"}`)
	full.CSR = make([]byte, 5<<10)
	_, e, _ := sendRequest(t, full)
	message, _, err := testOpener(t, "a").Open(seal.PurposeEnroll, e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wire.DecodeEnroll(message); err != nil {
		t.Errorf("full token and facts: %v", err)
	}
	if _, _, err := k.Encode(make(chan int)); err == nil {
		t.Error("a channel was encoded")
	}
}
