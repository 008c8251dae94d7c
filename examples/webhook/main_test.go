package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// With an empty secret anybody could sign.
func TestServeRefusesAnEmptySecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pager.secret")
	short := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))
	for _, text := range []string{"\n", "whsec_\n", "hush-plain", short} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := serve("127.0.0.1:0", "none.pem", "none.pem", file); err == nil ||
			!strings.HasPrefix(err.Error(), file+": want whsec_ ") {
			t.Errorf("serve = %v, want %q refused", err, text)
		}
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
