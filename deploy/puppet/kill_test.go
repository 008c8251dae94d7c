package puppet_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A client asks for a certificate as agents do.
type client struct {
	name    string
	request []byte // PEM
	got     []byte // PEM
}

func newClient(t *testing.T, name string) *client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &client{name: name, request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}
}

// once does one request.
func (c *client) once(ctx context.Context, h *http.Client, method, url string, body []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(string(body)))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "text/plain")
	answer, err := h.Do(r)
	if err != nil {
		return 0, nil, err
	}
	b, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode, b, err
}

// enroll asks until there is a certificate, over new connections.
func (c *client) enroll(ctx context.Context, base string, roots *x509.CertPool) error {
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		status, b, err := c.once(ctx, h, http.MethodPut, base+"/certificate_request/"+c.name, c.request)
		if err == nil && status == http.StatusOK {
			if status, b, err = c.once(ctx, h, http.MethodGet, base+"/certificate/"+c.name, nil); err == nil && status == http.StatusOK {
				c.got = b
				return nil
			}
		}
		h.CloseIdleConnections()
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: status %d: %.200s: %w", c.name, status, b, errors.Join(ctx.Err(), err))
		}
	}
}

// TestKilled ends muster as a power cut would while agents enroll, and starts it again. Each gets one certificate.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, rules)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(f.contents("prov/puppet-ca/bundle.pem")))
	const clients = 100
	all := make([]*client, clients)
	for i := range all {
		all[i] = newClient(t, fmt.Sprintf("auto-c%d.example.net", i))
	}
	var agents []*agent
	var bootstraps []*process
	for i, version := range []string{older, newer, older, newer, newer} {
		a := f.machine(version, fmt.Sprintf("auto-a%d.example.net", i), "")
		agents, bootstraps = append(agents, a), append(bootstraps, a.starts("ssl", "bootstrap", "--waitforcert", "1"))
	}
	// The agents need seconds for their keys. The clients start with the first of them that asks.
	eventually(t, "an agent asks", func() bool { return len(f.events("--type", "node.enrolled")) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var done atomic.Int64
	var wait sync.WaitGroup
	for _, c := range all {
		wait.Go(func() {
			if err := c.enroll(ctx, "https://localhost:"+f.port+"/puppet-ca/v1", roots); err != nil {
				t.Error(err)
			}
			done.Add(1)
		})
	}
	eventually(t, "some have certificates", func() bool { return done.Load() > clients/5 })
	f.running.kill()
	before := done.Load()
	f.start()
	wait.Wait()
	if before == clients {
		t.Error("all had their certificates before muster was killed")
	}
	for i, p := range bootstraps {
		if status := p.exit(); status != 0 {
			t.Errorf("%s ended with %d", agents[i].name, status)
			continue
		}
		agents[i].once(agents[i].certificate())
	}
	for _, c := range all {
		block, _ := pem.Decode(c.got)
		if block == nil {
			continue // already reported
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		(&agent{fleet: f, name: c.name}).once(certificate)
	}
	var list struct {
		Nodes []struct{ Identity string } `json:"nodes"`
	}
	if f.read(&list, "node", "list", "--limit", "0"); len(list.Nodes) != clients+len(agents) {
		t.Errorf("%d nodes are listed", len(list.Nodes))
	}
}
