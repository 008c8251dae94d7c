package puppet_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner"
)

// dial connects from a loopback address.
func dial(t testing.TB, f *testbed.Fleet, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(f.Context(), "tcp", strings.TrimPrefix(f.PuppetURL(), "https://"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestSlowClientsHinderNoAgent keeps hundreds of requests unfinished.
func TestSlowClientsHinderNoAgent(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	for i := range 300 {
		conn := tls.Client(dial(t, f, "127.0.0.3"), &tls.Config{InsecureSkipVerify: true})
		unfinished := "PUT /puppet-ca/v1/certificate_request/web1.example.net HTTP/1.1\r\nHost: x\r\n"
		if i%2 == 0 {
			unfinished += "Content-Length: 16384\r\n\r\n-----BEGIN"
		}
		if _, err := io.WriteString(conn, unfinished); err != nil {
			t.Fatal(err)
		}
	}
	for i, from := range []string{"127.0.0.4", "127.0.0.3"} {
		a := newAgent(t, f, fmt.Sprintf("n%d.example.net", i))
		a.source = from
		if got := a.enroll(); got.status != http.StatusOK {
			t.Errorf("an agent at %s: %+v: %s", from, got, f.Cause(a.name))
		}
	}
}

// TestConnectionsOfOneAddressAreBounded leaves room for the other addresses.
func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	var last net.Conn
	for range 2049 {
		last = dial(t, f, "127.0.0.5")
	}
	must(t, last.SetReadDeadline(time.Now().Add(8*time.Second))) // less than the server waits for a first byte
	if _, err := last.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection too many is not closed: %v", err)
	}
	a := newAgent(t, f, web1)
	a.source = "127.0.0.6"
	if got := a.enroll(); got.status != http.StatusOK {
		t.Errorf("another address: %+v", got)
	}
}

// TestLongChainsAreNotKept shows an agent's certificate many times: the bytes would stay with the connection.
func TestLongChainsAreNotKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	a := enrolled(t, f, web1)
	for n, good := range map[int]bool{4: true, 100: false} {
		shown := tls.Certificate{PrivateKey: a.key}
		for range n {
			shown.Certificate = append(shown.Certificate, a.leaf.Raw)
		}
		conn := tls.Client(dial(t, f, "127.0.0.8"),
			&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{shown}})
		_, err := io.WriteString(conn, "GET /status/v1/simple HTTP/1.1\r\nHost: x\r\n\r\n")
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if (err == nil) != good {
			t.Errorf("%d certificates: %v", n, err)
		}
	}
}

// TestBusyServerSaysSo has an address with more requests in progress than its share.
func TestBusyServerSaysSo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll, Quiet: true})
	release := make(chan struct{})
	held := make(chan struct{})
	f.Faults.RecordWrites.Before(func(context.Context, *provisioner.Record) {
		close(held)
		<-release
	})
	var all sync.WaitGroup
	defer all.Wait()
	put := func(i int, from string) answer {
		a := newAgent(t, f, fmt.Sprintf("n%d.example.net", i))
		a.source = from
		return a.do(http.MethodPut, ca+"certificate_request/"+a.name, a.csr())
	}
	var mu sync.Mutex
	var refused []answer
	for i := range 300 {
		all.Go(func() {
			if got := put(i, "127.0.0.7"); got.status != http.StatusOK {
				mu.Lock()
				refused = append(refused, got)
				mu.Unlock()
			}
		})
	}
	<-held
	f.Eventually("requests are refused", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(refused) >= 300-256
	})
	for _, got := range refused {
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
			t.Errorf("a busy server says %+v", got)
		}
	}
	a := newAgent(t, f, web1)
	a.source = "127.0.0.7"
	if got := a.get("certificate/" + web1); got.status != http.StatusNotFound {
		t.Errorf("a busy server gives a certificate with %+v", got)
	}
	other := newAgent(t, f, web1)
	other.source = "127.0.0.8"
	if got := other.get("certificate/ca"); got.status != http.StatusOK {
		t.Errorf("another address: %+v", got)
	}
	close(release)
}

// TestUnreadableStoreIsNoRefusal: an agent that cannot be judged waits, and a node that cannot be admitted comes back.
func TestUnreadableStoreIsNoRefusal(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testbed.Options{Policy: allowAll})
	node := enrolled(t, f, web1)
	a := newAgent(t, f, web2)
	f.Faults.Unreadable.Store(true)
	if got := a.enroll(); got.status != http.StatusNotFound {
		t.Errorf("GET certificate: %+v", got)
	}
	got := node.do(http.MethodPost, ca+"certificate_renewal", nil)
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("a node: %+v", got)
	}
	f.Faults.Unreadable.Store(false)
	if got := a.enroll(); got.status != http.StatusOK {
		t.Errorf("later: %+v", got)
	}
	f.Check()
}
