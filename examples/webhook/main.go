// Command webhook is an endpoint for muster's webhooks: it verifies events as Standard Webhooks specifies, and prints
// them.
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
	maxBodyBytes   = 1 << 20
	minSecretBytes = 24              // the minimum of Standard Webhooks; any sender could sign with an empty secret
	tolerance      = 5 * time.Minute // Standard Webhooks
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: webhook ADDRESS CERTIFICATE KEY SECRET-FILE")
		os.Exit(2) //nolint:forbidigo // this is main
	}
	fmt.Fprintln(os.Stderr, "webhook:", serve(os.Args[1], os.Args[2], os.Args[3], os.Args[4]))
	os.Exit(1) //nolint:forbidigo // this is main
}

func serve(address, certificate, privateKey, secretFile string) error {
	text, err := os.ReadFile(secretFile)
	if err != nil {
		return err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(string(text)), "whsec_"))
	if err != nil || len(key) < minSecretBytes {
		return fmt.Errorf("%s: want whsec_ and %d or more random bytes in base64", secretFile, minSecretBytes)
	}
	s := &http.Server{Addr: address, ReadTimeout: tolerance,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
			if err == nil {
				err = verify(key, r.Header, body, time.Now())
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			// An event may come again: if handling it twice does harm, remember its id for 72 hours.
			_, _ = fmt.Fprintf(os.Stdout, "%s %s\n", r.Header.Get("webhook-id"), body)
		})}
	return s.ListenAndServeTLS(certificate, privateKey)
}

// verify checks a request; do not use its content before.
func verify(key []byte, h http.Header, body []byte, now time.Time) error {
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return fmt.Errorf("webhook-timestamp differs from this clock by more than %v", tolerance)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	for s := range strings.FieldsSeq(h.Get("webhook-signature")) {
		text, ok := strings.CutPrefix(s, "v1,")
		got, err := base64.StdEncoding.DecodeString(text)
		if ok && err == nil && hmac.Equal(got, want) { // constant time
			return nil
		}
	}
	return errors.New("no good webhook-signature")
}
