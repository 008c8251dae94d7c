// Command webhook is an endpoint for muster's webhooks: it verifies what it gets,
// by the scheme of Standard Webhooks, and prints it.
//
//	webhook :8443 certificate.pem key.pem pager.secret
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	maxBodyBytes = 1 << 20
	tolerance    = 5 * time.Minute // as Standard Webhooks' libraries have it

	// Bounds of a secret, those of Standard Webhooks and of muster. Anybody can sign with
	// an empty one.
	minSecretBytes = 24
	maxSecretBytes = 64
)

func main() {
	if err := serve(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// serve takes events and writes them to out.
func serve(args []string, out io.Writer) error {
	const want = 4
	if len(args) != want {
		return errors.New("want ADDRESS CERTIFICATE KEY SECRET-FILE")
	}
	text, err := os.ReadFile(args[3])
	if err != nil {
		return err
	}
	key, err := secret(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", args[3], err)
	}
	s := &http.Server{Addr: args[0], ReadTimeout: tolerance, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
		if err == nil {
			err = verify(key, r.Header, body, time.Now())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// The same event may come again: whoever must not act twice remembers
		// the id, for 72 hours.
		_, _ = fmt.Fprintf(out, "%s %s\n", r.Header.Get("webhook-id"), body)
	})}
	return s.ListenAndServeTLS(args[1], args[2])
}

// secret reads the one that signs.
func secret(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(text), "whsec_"))
	if err != nil {
		return nil, errors.New("want whsec_ and base64")
	}
	if len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, fmt.Errorf("secret of %d bytes, want whsec_ and %d to %d random bytes in base64: the file that secret in provisioner.yaml names", len(key), minSecretBytes, maxSecretBytes)
	}
	return key, nil
}

// verify says what is wrong with a request: nothing in it counts before.
func verify(key []byte, h http.Header, body []byte, now time.Time) error {
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return fmt.Errorf("webhook-timestamp is more than %v off", tolerance)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	for s := range strings.FieldsSeq(h.Get("webhook-signature")) {
		text, ok := strings.CutPrefix(s, "v1,")
		got, err := base64.StdEncoding.DecodeString(text)
		if ok && err == nil && hmac.Equal(got, want) { // takes as long for every wrong one
			return nil
		}
	}
	return errors.New("no good webhook-signature")
}
