package seal_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/seal"
	"muster/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files, if there are none")

// The golden files are sealed to the test key "golden" and must open forever, because nodes send such messages.
// Sealing is random, so -update keeps existing files.
const (
	goldenEnroll = "enroll.json"
	goldenReply  = "reply.json"
	goldenToken  = "token.txt" // of the same session
	goldenProof  = "proof.txt" // over nonce
)

func writeGolden(t testing.TB) {
	t.Helper()
	session := testSession(t, "golden")
	raw, _, err := session.Encode(request())
	if err != nil {
		t.Fatal(err)
	}
	e, err := wire.Open(raw, wire.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	_, sealer, err := testOpener(t, "golden").Open(seal.PurposeEnroll, e)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := sealer.EncodeReply(reply())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{goldenEnroll: raw, goldenReply: answer,
		goldenToken: []byte(session.Token()), goldenProof: []byte(presented(t, session).Signature)} {
		if err := os.WriteFile(filepath.Join("testdata", name), append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b, []byte("\n"))
}

func goldenExchange(t testing.TB) ([]byte, *seal.ReplySealer, *seal.ReplyOpener) {
	t.Helper()
	e, err := wire.Open(readGolden(t, goldenEnroll), wire.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	message, sealer, err := testOpener(t, "golden").Open(seal.PurposeEnroll, e)
	if err != nil {
		t.Fatal(err)
	}
	return message, sealer, sealer.Opener()
}

func TestGolden(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join("testdata", goldenEnroll)); *update && errors.Is(err, fs.ErrNotExist) {
		writeGolden(t)
	}
	message, _, opener := goldenExchange(t)
	r, err := wire.DecodeEnroll(message)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(request(), r); d != "" {
		t.Errorf("request (-want +recorded):\n%s", d)
	}
	answer, err := opener.DecodeReply(readGolden(t, goldenReply))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(reply(), answer); d != "" {
		t.Errorf("reply (-want +recorded):\n%s", d)
	}
	o := testOpener(t, "golden")
	p := goldenPresented(t)
	if token, err := o.OpenToken(p); err != nil || token != secretToken {
		t.Errorf("recorded token = %q, %v", string(token), err)
	}
	e, err := wire.Open(readGolden(t, goldenEnroll), wire.MaxMessageBytes)
	if err != nil || seal.SessionName(e.Encapsulated) != p.Name {
		t.Errorf("recorded request is of session %q, %v, want %q", seal.SessionName(e.Encapsulated), err, p.Name)
	}
}

func goldenPresented(t testing.TB) seal.Presented {
	t.Helper()
	token := string(readGolden(t, goldenToken))
	parts := strings.Split(token, ".")
	return seal.Presented{Token: token, Name: parts[len(parts)-2], Signature: string(readGolden(t, goldenProof)),
		Nonce: nonce}
}
