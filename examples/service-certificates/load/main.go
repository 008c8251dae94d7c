// Load opens TLS connections to servers whose certificates are renewed, one after another for each server, with one
// request on each. It prints failures and counts, and exits with 1 if a request failed, or if a server or the client
// had fewer certificates than -certificates.
//
//	load -ca ca.pem -client client.pem 127.0.0.1:8443=www.example.net ...
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	span     = flag.Duration("time", 2*time.Minute, "how long")
	interval = flag.Duration("interval", 10*time.Millisecond, "between two requests to a server")
	ca       = flag.String("ca", "/etc/muster/tls/ca.pem", "file with the roots")
	client   = flag.String("client", "/etc/muster/tls/client.pem", "file with the client's certificates and key")
	fewest   = flag.Int("certificates", 1, "how many certificates each server and the client must have had")
)

// A count is of one server, or of the client.
type count struct {
	name             string
	requests, failed int
	serials          map[string]bool
}

func main() {
	flag.Parse()
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(w io.Writer) error {
	own := count{name: "client", serials: map[string]bool{}}
	var mu sync.Mutex // guards own
	// The certificate is read for each connection; it is one file, so key and certificate always fit.
	certificate := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pem, err := os.ReadFile(*client)
		if err != nil {
			return nil, err
		}
		c, err := tls.X509KeyPair(pem, pem)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			own.requests++
			own.serials[c.Leaf.SerialNumber.Text(16)] = true
		}
		return &c, err
	}
	roots := x509.NewCertPool()
	if pem, err := os.ReadFile(*ca); err != nil || !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no roots in %s: %w", *ca, err)
	}
	counts := make([]count, flag.NArg())
	var all sync.WaitGroup
	end := time.Now().Add(*span)
	for i, target := range flag.Args() {
		all.Go(func() {
			address, name, _ := strings.Cut(target, "=")
			c := &counts[i]
			c.name, c.serials = target, map[string]bool{}
			h := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
				DisableKeepAlives: true,
				TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: name, GetClientCertificate: certificate},
			}}
			again := time.NewTicker(*interval)
			defer again.Stop()
			for at := time.Now(); at.Before(end); at = <-again.C {
				c.request(w, h, "https://"+address+"/")
			}
		})
	}
	all.Wait()
	ok := true
	for _, c := range slices.Concat(counts, []count{own}) {
		_, _ = fmt.Fprintf(w, "%s: %d requests, %d failed, %d certificates\n", c.name, c.requests, c.failed,
			len(c.serials))
		ok = ok && c.requests > 0 && c.failed == 0 && len(c.serials) >= *fewest
	}
	if !ok {
		return fmt.Errorf("want no failure, and %d certificates of each", *fewest)
	}
	return nil
}

func (c *count) request(w io.Writer, h *http.Client, url string) {
	c.requests++
	r, err := h.Get(url)
	if err == nil {
		c.serials[r.TLS.PeerCertificates[0].SerialNumber.Text(16)] = true
		if err = r.Body.Close(); r.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s", r.Status)
		}
	}
	if err != nil {
		c.failed++
		_, _ = fmt.Fprintf(w, "%s %s: %v\n", time.Now().Format(time.StampMilli), c.name, err)
	}
}
