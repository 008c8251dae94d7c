package broker_test

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
)

// driverEnv makes the test binary a driver: a process of its own that connects,
// so that what the broker's process uses is the broker's.
const driverEnv = "MUSTER_TEST_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(driverEnv) == "" {
		m.Run() // the tests' exit code is the process's
		return
	}
	if err := drive(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err) // whoever waits for it to be done sees its end
	}
}

// An order is what a driver is told on its standard input, in JSON.
type order struct {
	Address     string // host:port
	Connections int
	Concurrency int

	Token string // presented at CONNECT
	Seal  string // public key to which the token is sealed, if any

	TLS         bool
	Roots       []byte   // DER
	Certificate [][]byte // DER, presented by every connection, if any
	Key         []byte   // PKCS #8

	Requests []string // subjects on which each connection asks, one after the other
	Wildcard bool     // ask with one inbox for all requests, as nats.go does unless told otherwise
	Hold     bool     // keep every connection until standard input ends

	// Patience bounds a connection up to its PONG, after which it is tried again,
	// later each time, as the agent does. Zero is a minute, and once.
	Patience time.Duration
}

// drive does what the order says and prints one line when all connections have
// been made, and were closed unless they are to be held.
func drive(in io.Reader, out io.Writer) error {
	var o order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	config, err := o.config()
	if err != nil {
		return err
	}
	var next, failed, again atomic.Int64
	var first atomic.Pointer[error]
	held := make(chan net.Conn, o.Connections)
	var g sync.WaitGroup
	for range o.Concurrency {
		g.Go(func() {
			for next.Add(1) <= int64(o.Connections) {
				conn, err := o.connect(config)
				for wait := time.Second; err != nil && o.Patience > 0; wait = min(2*wait, time.Minute) {
					if conn != nil {
						conn.Close()
					}
					again.Add(1)
					<-time.After(wait/2 + rand.N(wait/2))
					conn, err = o.connect(config)
				}
				if err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
				if o.Hold && err == nil {
					held <- conn
				} else if conn != nil {
					conn.Close()
				}
			}
		})
	}
	g.Wait()
	if err := first.Load(); err != nil {
		return fmt.Errorf("%d of %d connections, the first: %w", failed.Load(), o.Connections, *err)
	}
	fmt.Fprintln(out, "done", again.Load())
	if o.Hold {
		_, err = io.Copy(io.Discard, in)
	}
	return err
}

func (o *order) config() (*tls.Config, error) {
	if !o.TLS {
		return nil, nil
	}
	roots := x509.NewCertPool()
	root, err := x509.ParseCertificate(o.Roots)
	if err != nil {
		return nil, err
	}
	roots.AddCert(root)
	config := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13}
	if len(o.Certificate) > 0 {
		key, err := x509.ParsePKCS8PrivateKey(o.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{{Certificate: o.Certificate, PrivateKey: key}}
	}
	return config, nil
}

// connect makes one connection and asks what there is to ask.
func (o *order) connect(config *tls.Config) (net.Conn, error) {
	patience := cmp.Or(o.Patience, time.Minute)
	deadline := time.Now().Add(patience)
	conn, err := net.DialTimeout("tcp", o.Address, patience)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(deadline)
	r := bufio.NewReaderSize(conn, 2048)
	line, err := r.ReadString('\n')
	if err != nil {
		return conn, fmt.Errorf("INFO: %w", err)
	}
	var info struct {
		Nonce string `json:"nonce"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info); err != nil {
		return conn, err
	}
	if config != nil {
		t := tls.Client(conn, config)
		if err := t.Handshake(); err != nil {
			return conn, err
		}
		conn, r = t, bufio.NewReaderSize(t, 2048)
	}
	name := wire.NewID()
	connect, err := o.hello(name, info.Nonce)
	if err != nil {
		return conn, err
	}
	if _, err := io.WriteString(conn, connect+"PING\r\n"); err != nil {
		return conn, err
	}
	if err := expect(r, "PONG"); err != nil {
		return conn, fmt.Errorf("CONNECT: %w", err)
	}
	return conn, o.ask(conn, r, wire.InboxPrefix(name))
}

// hello returns CONNECT as nats.go writes it.
func (o *order) hello(name, nonce string) (string, error) {
	members := map[string]any{
		"verbose": false, "pedantic": false, "tls_required": o.TLS, "name": name, "lang": "go", "version": "1.55.0",
		"protocol": 1, "echo": true, "headers": true, "no_responders": true,
	}
	switch {
	case o.Seal != "":
		key, err := seal.ParsePublicKey(o.Seal)
		if err != nil {
			return "", err
		}
		session, err := seal.NewSession(key, wire.Secret(o.Token))
		if err != nil {
			return "", err
		}
		sig, err := session.Prove([]byte(nonce))
		if err != nil {
			return "", err
		}
		members["auth_token"], members["nkey"], members["sig"] = session.Token(), session.Name(), base64.RawURLEncoding.EncodeToString(sig)
	case o.Token != "":
		members["auth_token"] = o.Token
	}
	b, err := json.Marshal(members)
	return "CONNECT " + string(b) + "\r\n", err
}

// ask sends the requests, each after the reply to the one before.
func (o *order) ask(conn net.Conn, r *bufio.Reader, inbox string) error {
	for i, subject := range o.Requests {
		reply := fmt.Sprintf("%s.%d", inbox, i)
		text := fmt.Sprintf("SUB %s %d\r\nUNSUB %[2]d 1\r\n", reply, i+1)
		if o.Wildcard {
			if text = ""; i == 0 {
				text = fmt.Sprintf("SUB %s.* 1\r\n", inbox)
			}
		}
		payload := strings.Repeat("x", 3500) // as much as a token, 2 KB of facts and a CSR take
		if _, err := fmt.Fprintf(conn, "%sPUB %s %s %d\r\n%s\r\n", text, subject, reply, len(payload), payload); err != nil {
			return err
		}
		if err := expect(r, "MSG"); err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		if _, err := r.ReadString('\n'); err != nil { // the payload, which has no line end in it
			return err
		}
	}
	return nil
}

// expect reads lines up to one that begins as wanted.
func expect(r *bufio.Reader, begin string) error {
	for {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(line, begin):
			return nil
		case strings.HasPrefix(line, "-ERR"):
			return errors.New(strings.TrimSpace(line))
		}
	}
}

// driver starts a driver with an order. wait returns when it has done its work,
// with how many connections it had to try again; stop ends one that holds its connections.
func driver(tb testing.TB, o *order) (wait func() int, stop func()) {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), driverEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	if err := json.NewEncoder(in).Encode(o); err != nil {
		tb.Fatal(err)
	}
	wait = func() int {
		tb.Helper()
		var again int
		if _, err := fmt.Fscanf(out, "done %d\n", &again); err != nil {
			tb.Fatalf("driver: %v", err)
		}
		return again
	}
	stop = func() {
		tb.Helper()
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("driver: %v", err)
		}
	}
	return wait, stop
}

// cpuTime is what this process has used, in user and system mode.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
