package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestSecret(t *testing.T) {
	t.Parallel()
	of := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n)) }
	for name, tt := range map[string]struct {
		text string
		says string // empty: it is good
	}{
		"as muster has it":   {"whsec_" + of(32) + "\n", ""},
		"shortest":           {"whsec_" + of(24), ""},
		"longest":            {"whsec_" + of(64), ""},
		"an empty file":      {"", "secret of 0 bytes, want whsec_ and 24 to 64 random bytes in base64"},
		"blanks":             {" \n\n", "secret of 0 bytes"},
		"nothing behind it":  {"whsec_\n", "secret of 0 bytes"},
		"one byte too few":   {"whsec_" + of(23), "secret of 23 bytes"},
		"one byte too many":  {"whsec_" + of(65), "secret of 65 bytes"},
		"something else":     {"hush-plain", "want whsec_ and base64"},
		"two, one of a line": {"whsec_" + of(32) + "\nwhsec_" + of(32) + "\n", "want whsec_ and base64"},
	} {
		key, err := secret(tt.text)
		switch {
		case tt.says == "" && (err != nil || len(key) < minSecretBytes):
			t.Errorf("%s: %d bytes, %v", name, len(key), err)
		case tt.says != "" && (err == nil || key != nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "hush")):
			t.Errorf("%s: %d bytes, %v, want %q", name, len(key), err, tt.says)
		}
	}
}

// TestServeRefusesAnEmptySecret expects the file's name: anybody could sign with what is in it.
func TestServeRefusesAnEmptySecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pager.secret")
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := serve([]string{"127.0.0.1:0", "none.pem", "none.pem", file}, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), file+": secret of 0 bytes, want ") {
		t.Errorf("serve = %v, want %s refused", err, file)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	key, body, now := bytes.Repeat([]byte{7}, minSecretBytes), []byte(`{"id":"1"}`), time.Unix(1_772_366_400, 0)
	signed := func(key []byte, at time.Time) http.Header {
		stamp := strconv.FormatInt(at.Unix(), 10)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte("1." + stamp + "." + string(body)))
		h := make(http.Header)
		h.Set("webhook-id", "1")
		h.Set("webhook-timestamp", stamp)
		h.Set("webhook-signature", "v1,AAAA v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		return h
	}
	if err := verify(key, signed(key, now), body, now); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, h := range map[string]http.Header{
		"of an empty secret": signed(nil, now), "old": signed(key, now.Add(-tolerance-time.Second)), "not signed": {},
	} {
		if err := verify(key, h, body, now); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := verify(key, signed(key, now), []byte("{}"), now); err == nil {
		t.Error("another body: accepted")
	}
}
