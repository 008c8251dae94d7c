package chaos_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

// Files on a simulated node's disk.
const (
	keyFile     = "private.pem"
	certFile    = "certificate.pem"
	appliedFile = "applied" // empty; the confirmation was acknowledged
)

// A node is simulated, with a disk: it makes its key once, keeps trying as the protocol asks, and reports events.
// After its process died, the next one continues from its disk.
type node struct {
	job  job
	sim  *simnode.Node
	dir  string
	say  func(event)
	wait backoff
}

// openNode reads a node's disk, or makes it.
func openNode(j job, identity, token string, say func(event)) (*node, error) {
	n := &node{
		job:  j,
		dir:  filepath.Join(j.Dir, identity),
		say:  say,
		wait: backoff{min: j.BackoffMin, max: j.BackoffMax},
	}
	path := filepath.Join(n.dir, keyFile)
	key, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err == nil {
			err = writeKey(path, key)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key of %s: %w", identity, err)
	}
	csr, err := simnode.CSR(key, identity)
	n.sim = &simnode.Node{
		Identity: identity,
		Token:    token,
		Key:      key,
		CSR:      csr,
		Facts:    json.RawMessage(`{"os":"linux"}`),
		Boot:     wire.NewID(),
	}
	return n, err
}

// run enrolls and confirms until the node is provisioned. slots bounds concurrent connections: a process has 20,000
// descriptors.
func (n *node) run(ctx context.Context, slots chan struct{}) {
	for {
		if _, err := os.Stat(filepath.Join(n.dir, appliedFile)); err == nil {
			n.say(event{Kind: kindAlready, Node: n.sim.Identity})
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		pause, err := n.try(ctx)
		<-slots
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// try makes one attempt. An error asks for another after the pause: a little more than the provisioner said, else the
// next backoff.
func (n *node) try(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, n.job.Timeout)
	defer cancel()
	pause := n.wait.next()
	nc, err := simnode.Dial(n.job.URL, n.sim.Token)
	if err != nil {
		return pause, err
	}
	defer nc.Close()
	r, err := simnode.Enroll(ctx, nc, n.sim.Request())
	if err != nil {
		return pause, err
	}
	if r.Enrolled == nil {
		return n.refused(r, pause)
	}
	if err := n.keep(r.Enrolled); err != nil {
		n.say(event{Kind: kindBad, Node: n.sim.Identity, Text: err.Error()})
		return pause, err
	}
	n.say(event{Kind: kindEnrolled, Node: n.sim.Identity, Text: r.Enrolled.Serial})
	a, err := n.sim.Confirm(r.Enrolled)
	if err != nil {
		return pause, err
	}
	if r, err = simnode.Apply(ctx, nc, a); err != nil {
		return pause, err
	}
	if r.Applied == nil {
		return n.refused(r, pause)
	}
	if err := os.WriteFile(filepath.Join(n.dir, appliedFile), nil, 0o600); err != nil {
		return pause, err
	}
	n.say(event{Kind: kindProvisioned, Node: n.sim.Identity})
	return 0, nil
}

// refused returns how long a refused node waits.
func (n *node) refused(r *wire.Reply, pause time.Duration) (time.Duration, error) {
	if r.Refusal == nil {
		return pause, errors.New("a reply to something else")
	}
	n.say(event{Kind: kindRefused, Node: n.sim.Identity, Text: string(r.Refusal.Code)})
	if told := r.Refusal.Wait(); told > 0 {
		pause = min(told, n.job.TellCap)
		pause += time.Duration(mrand.Int64N(int64(pause)/4 + 1))
	}
	return pause, errors.New(string(r.Refusal.Code))
}

// keep checks a certificate against the node's key and name, and writes it before it is confirmed.
func (n *node) keep(e *wire.Enrolled) error {
	leaf, err := parseCertificate([]byte(e.Certificate))
	if err != nil {
		return err
	}
	if pub, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(n.sim.Key.Public()) ||
		ca.Serial(leaf) != e.Serial || leaf.DNSNames[0] != n.sim.Identity {
		return fmt.Errorf("was given a certificate of %v, serial %s", leaf.DNSNames, ca.Serial(leaf))
	}
	return replaceFile(filepath.Join(n.dir, certFile), []byte(e.Certificate))
}

// backoff is the agent's: between half and all of a doubling bound.
type backoff struct {
	min, max time.Duration
	tries    int
}

func (b *backoff) next() time.Duration {
	bound := b.max
	if b.tries < 30 && b.min<<b.tries < b.max {
		bound = b.min << b.tries
	}
	b.tries++
	return bound/2 + time.Duration(mrand.Int64N(int64(bound/2)+1))
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s: no PEM", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: is %T", path, key)
	}
	return ec, nil
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return replaceFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// replaceFile replaces a file atomically: the process may die, the machine does not.
func replaceFile(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// parseCertificate returns the first certificate of a PEM text.
func parseCertificate(b []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("no certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}
