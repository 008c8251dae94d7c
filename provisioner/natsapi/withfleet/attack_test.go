package natsapi_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
)

// attackVariable makes a copy of the test program the attacker.
const attackVariable = "MUSTER_TEST_ATTACK"

// TestMain runs the tests or, in the copy that [attack] starts, the attack. A process of its own keeps the
// attacker's CPU time apart.
func TestMain(m *testing.M) {
	spec := os.Getenv(attackVariable)
	if spec == "" {
		m.Run()
		return
	}
	var a assault
	if err := json.Unmarshal([]byte(spec), &a); err != nil {
		panic(err)
	}
	a.run(os.Stdin, os.Stdout)
}

// An assault is what an attacker does, in parallel, until it is stopped.
type assault struct {
	Address string // of the broker
	Silent  int    // connections that say nothing, opened again when they are dropped
	Half    int    // TLS handshakes that stop after the first message, likewise
	Token   string // a stolen one, for requests of 1 MB
	Large   int    // of those a second, each on a connection of its own; 100 fill a network of 1 Gbit/s
	Forged  string // token that the provisioner takes for one of an RSA-4096 signer's until it has looked
	Forge   int    // of those a second, each on a connection of its own
}

// tally counts what an assault achieved.
type tally struct{ Silent, Half, Large, Forged atomic.Int64 }

// run attacks until stop ends. It writes a line to out once everything is under way, and its tally at the end.
func (a *assault) run(stop io.Reader, out io.Writer) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var done tally
	var all, first sync.WaitGroup
	for i := range a.Silent + a.Half {
		first.Add(1)
		count, what := &done.Silent, idle
		if i >= a.Silent {
			count, what = &done.Half, handshake
		}
		all.Go(func() {
			begun := sync.OnceFunc(first.Done)
			for ctx.Err() == nil {
				if a.connect(ctx, what, begun) {
					count.Add(1)
				}
			}
		})
	}
	first.Wait()
	connect := func(token, after string) func(net.Conn, func()) {
		return func(c net.Conn, _ func()) { hello(c, token, after) }
	}
	large := "PUB " + wire.SubjectEnroll + " 1000000\r\n" + strings.Repeat("x", 1_000_000) + "\r\n"
	all.Go(func() { a.repeat(ctx, a.Large, &done.Large, connect(a.Token, large)) })
	all.Go(func() { a.repeat(ctx, a.Forge, &done.Forged, connect(a.Forged, "")) })
	fmt.Fprintln(out, "under way")
	_, _ = io.Copy(io.Discard, stop)
	cancel()
	all.Wait()
	fmt.Fprintln(out, done.Silent.Load(), done.Half.Load(), done.Large.Load(), done.Forged.Load())
}

// connect does one thing on a new connection, which ends with ctx.
func (a *assault) connect(ctx context.Context, what func(net.Conn, func()), begun func()) bool {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	c, err := dialer.DialContext(ctx, "tcp", a.Address)
	if err != nil {
		begun()
		return false
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	what(c, begun)
	return true
}

// repeat does a thing so many times a second, at most 64 at once.
func (a *assault) repeat(ctx context.Context, perSecond int, count *atomic.Int64, what func(net.Conn, func())) {
	limit := rate.NewLimiter(rate.Limit(perSecond), 1)
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	for perSecond > 0 && limit.Wait(ctx) == nil {
		slots <- struct{}{}
		all.Go(func() {
			if a.connect(ctx, what, func() {}) {
				count.Add(1)
			}
			<-slots
		})
	}
	all.Wait()
}

// idle sends nothing until the connection is dropped.
func idle(c net.Conn, begun func()) {
	begun()
	_, _ = io.Copy(io.Discard, c)
}

// handshake begins TLS and sends nothing after its first message.
func handshake(c net.Conn, begun func()) {
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil { // INFO
		begun()
		return
	}
	// The client hello is written, and what comes back never read by TLS.
	_ = tls.Client(deaf{c, r, begun}, &tls.Config{InsecureSkipVerify: true}).Handshake()
}

// deaf is a connection on which TLS receives nothing.
type deaf struct {
	net.Conn
	r     *bufio.Reader
	begun func()
}

// Read waits for the end of the connection.
func (d deaf) Read([]byte) (int, error) {
	d.begun()
	_, _ = io.Copy(io.Discard, d.r)
	return 0, io.EOF
}

// hello presents a token, sends something after it, and reads until the end, or until the token was accepted if
// there is nothing else to send.
func hello(c net.Conn, token, after string) {
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil {
		return
	}
	b, _ := json.Marshal(map[string]any{"auth_token": token, "name": wire.NewID(), "verbose": false, "protocol": 1, "lang": "go", "version": "1"})
	if _, err := fmt.Fprintf(c, "CONNECT %s\r\nPING\r\n%s", b, after); err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r)
}

// attack starts an assault on the fleet. The returned function stops it and returns its tally.
func attack(t *testing.T, f *testbed.Fleet, a assault) func() string {
	t.Helper()
	a.Address = strings.TrimPrefix(f.URL(), "nats://")
	spec, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), attackVariable+"="+string(spec))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the attack does not begin")
	}
	return sync.OnceValue(func() string {
		_ = in.Close()
		lines.Scan()
		if err := cmd.Wait(); err != nil {
			t.Errorf("attack: %v", err)
		}
		return lines.Text()
	})
}

// besieged returns a fleet with an RSA-4096 signer whose private key is discarded, and a token that looks like that
// signer's until its signature is checked.
func besieged(t *testing.T, opts testbed.Options) (*testbed.Fleet, string) {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 4095))
	if err != nil {
		t.Fatal(err)
	}
	n.SetBit(n, 4095, 1).SetBit(n, 0, 1) // of full size, and odd
	spki, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n, E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rsa.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}), 0o600); err != nil {
		t.Fatal(err)
	}
	edit := opts.Edit
	opts.Edit = func(c *daemon.Config) {
		c.Tokens.Signers = append(c.Tokens.Signers, daemon.SignerConfig{File: path})
		if edit != nil {
			edit(c)
		}
	}
	f := testbed.New(t, opts)
	claims := strings.Split(f.Token(nil), ".")[1]
	signature := make([]byte, 512)
	_, _ = rand.Read(signature)
	signature[0] &= 0x7f // below the modulus, or it is refused at a glance
	b64 := base64.RawURLEncoding
	return f, b64.EncodeToString([]byte(`{"alg":"RS512","typ":"JWT"}`)) + "." + claims + "." + b64.EncodeToString(signature)
}

// provision repeats once until the node is provisioned, and returns the number of tries.
func provision(ctx context.Context, url string, n *simnode.Node) (tries int, err error) {
	for tries = 1; ctx.Err() == nil; tries++ {
		if err = once(ctx, url, n); err == nil {
			return tries, nil
		}
	}
	return tries, fmt.Errorf("%s after %d tries: %w", n.Identity, tries, err)
}

// once takes a node from connecting to its confirmation.
func once(ctx context.Context, url string, n *simnode.Node) error {
	nc, err := simnode.Dial(url, n.Token)
	if err != nil {
		return err
	}
	defer nc.Close()
	r, err := simnode.Enroll(ctx, nc, n.Request())
	if err != nil {
		return err
	}
	if r.Enrolled == nil {
		return fmt.Errorf("refused: %s", r.Refusal.Code)
	}
	a, err := n.Confirm(r.Enrolled)
	if err != nil {
		return err
	}
	if r, err = simnode.Apply(ctx, nc, a); err == nil && r.Applied == nil {
		err = fmt.Errorf("confirmation refused: %s", r.Refusal.Code)
	}
	return err
}

// enrollAll provisions nodes, several at once, and fails the test for each that is not provisioned.
func enrollAll(t *testing.T, f *testbed.Fleet, nodes []*simnode.Node) {
	t.Helper()
	ctx := f.Context()
	var next atomic.Int64
	var drivers sync.WaitGroup
	for range 32 {
		drivers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(nodes)); i = next.Add(1) - 1 {
				if _, err := provision(ctx, f.URL(), nodes[i]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	drivers.Wait()
}

// TestHonestNodesEnrollUnderAttack runs all attacks at a rate that a busy machine survives. All honest nodes enroll.
func TestHonestNodesEnrollUnderAttack(t *testing.T) {
	t.Parallel()
	f, forged := besieged(t, testbed.Options{Quiet: true})
	token := f.Token(nil)
	var nodes []*simnode.Node
	for i := range 60 {
		n, err := simnode.New(fmt.Sprintf("web%d.example.net", i), token)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	f.Dial(token) // it has been good before
	stop := attack(t, f, assault{Silent: 200, Half: 50, Token: token, Large: 20, Forged: forged, Forge: 100})
	defer stop()
	enrollAll(t, f, nodes)
	for _, n := range nodes {
		if r := f.Record(n.Identity); r == nil || r.Current == nil {
			t.Errorf("%s: %+v", n.Identity, r)
		}
	}
	t.Logf("silent, half open, large, forged: %s", stop())
	f.Check()
}
