package demo

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
)

// The rogue comes from an address of its own where the system has all of
// 127.0.0.0/8, as Linux has, so that it is told from the fleet's.
const rogueAddress = "127.66.6.6"

// rogueEvery is how often it tries something; chosen, so that it is seen at work
// and does not bury what others do.
const rogueEvery = 4 * time.Second

// rogue tries until ctx is done to get in where it must not.
func (s *stay) rogue(ctx context.Context) error {
	tries, err := s.tries()
	if err != nil {
		return err
	}
	dialer := &net.Dialer{Timeout: rogueEvery}
	if l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", rogueAddress+":0"); err == nil {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(rogueAddress)}
		_ = l.Close() // it only shows that the address is ours
	}
	again := time.NewTicker(rogueEvery)
	defer again.Stop()
	for i := 0; ; i++ {
		if err := attempt(ctx, s.url(), tries[i%len(tries)], dialer); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// tries are what the rogue has: the stolen token, one that it has altered, one that
// it has signed itself, and names of others.
func (s *stay) tries() ([]*simnode.Node, error) {
	b, err := os.ReadFile(s.tokenFile(tokenStolen))
	if err != nil {
		return nil, err
	}
	stolen := strings.TrimSpace(string(b))
	_, own, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("foreign signer: %w", err)
	}
	c, l := claims(s.daemon)
	l.Seal = ""
	forged, err := signed(own, c, l)
	if err != nil {
		return nil, err
	}
	victim := s.all[0].name
	var tries []*simnode.Node
	for _, t := range []struct{ name, token, csr string }{
		{"rogue." + domain, forged, ""},
		{victim, stolen, ""},
		{"rogue." + domain, tamper(stolen), ""},
		{"rogue." + domain, stolen, victim},
	} {
		n, err := simnode.New(t.name, t.token)
		if err != nil {
			return nil, err
		}
		if t.csr != "" {
			if n.CSR, err = simnode.CSR(n.Key, t.csr); err != nil {
				return nil, err
			}
		}
		tries = append(tries, n)
	}
	return tries, nil
}

// attempt has the rogue try once. That it gets in is an error; what else becomes of
// it is the provisioner's to tell.
func attempt(ctx context.Context, url string, n *simnode.Node, dialer *net.Dialer) error {
	nc, err := simnode.Dial(url, n.Token, nats.SetCustomDialer(dialer))
	if err != nil {
		return nil //nolint:nilerr // refused at the door, as it should be
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, rogueEvery)
	defer cancel()
	reply, err := simnode.Enroll(ctx, nc, n.Request())
	if err != nil {
		return nil //nolint:nilerr // it has got no answer
	}
	if reply.Refusal == nil {
		return fmt.Errorf("%s was let in from %s although it is a rogue", n.Identity, rogueAddress)
	}
	return nil
}
