package seal_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/seal"
	"muster/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files, if there are none")

// The golden files were sealed to the test key "golden" once and must open for
// ever: nodes in the field send the like. Sealing is random, so they cannot be
// made again, only replaced, and -update leaves those alone that are there.
const (
	goldenEnroll = "enroll.json"
	goldenReply  = "reply.json"
	goldenToken  = "token.txt"
)

func writeGolden(t testing.TB) {
	t.Helper()
	raw, _, err := seal.EncodeRequest(testKey(t, "golden").Public(), request())
	if err != nil {
		t.Fatal(err)
	}
	e, err := wire.Open(raw, wire.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	_, sealer, err := testOpener(t, "golden").OpenRequest(e)
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
	for name, b := range map[string][]byte{goldenEnroll: raw, goldenReply: answer, goldenToken: []byte(sealedToken(t, "golden", secretToken))} {
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

// goldenExchange opens the recorded request and returns both ends of it.
func goldenExchange(t testing.TB) ([]byte, *seal.ReplySealer, *seal.ReplyOpener) {
	t.Helper()
	e, err := wire.Open(readGolden(t, goldenEnroll), wire.MaxMessageBytes)
	if err != nil {
		t.Fatal(err)
	}
	message, sealer, err := testOpener(t, "golden").OpenRequest(e)
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
	token, gotNkey, err := testOpener(t, "golden").OpenToken(string(readGolden(t, goldenToken)))
	if err != nil || token != secretToken || gotNkey != nkey {
		t.Errorf("recorded token = %q, %q, %v", string(token), gotNkey, err)
	}
}
