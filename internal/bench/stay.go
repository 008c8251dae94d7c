package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
)

// A member is a node that got through, in the fleet.
type member struct {
	*driver
	node     *node
	conn     *conn
	commands simnode.Commands
}

// stay connects every node that got through to the fleet, over mutual TLS with
// what it was given, and has them listen for their commands as agents do, until
// in ends. Who is told to reprovision does; see [member.reprovision].
func (d *driver) stay(ctx context.Context, reports *json.Encoder) error {
	members, err := d.gather(ctx, reports)
	if err != nil {
		return err
	}
	// What becomes of them from now on is another outcome.
	d.outcome, d.latencies = Outcome{Nodes: len(members), Refusals: map[wire.Code]int{}, Start: time.Now().UnixNano()}, nil
	var all sync.WaitGroup
	var back atomic.Int64
	room := make(chan struct{}, d.order.Concurrency)
	for _, m := range members {
		all.Go(func() { m.live(ctx, room, func() { back.Add(1) }) })
	}
	if err := reports.Encode(Report{Connected: len(members), Settled: true}); err != nil {
		return err
	}
	if !d.order.Kick { // nobody listens
		all.Wait()
		return nil
	}
	cpu := ownCPU()
	stop := every(ctx, func() { _ = reports.Encode(Report{Back: int(back.Load())}) })
	all.Wait()
	stop()
	d.outcome.CPU = ownCPU() - cpu
	d.verify(context.WithoutCancel(ctx))
	return reports.Encode(Report{Outcome: &d.outcome})
}

// gather connects the nodes.
func (d *driver) gather(ctx context.Context, reports *json.Encoder) ([]*member, error) {
	token, err := jwt.Peek(d.order.Token)
	if err != nil {
		return nil, err
	}
	var next, connected atomic.Int64
	stop := every(ctx, func() { _ = reports.Encode(Report{Connected: int(connected.Load())}) })
	defer stop()
	members := make([]*member, 0, len(d.nodes))
	for _, n := range d.nodes {
		if n.certificate != "" {
			members = append(members, &member{driver: d, node: n, commands: simnode.Commands{
				Identity: wire.Identity(n.identity), Secret: token.Token, Verbs: []wire.Verb{wire.VerbReprovision},
			}})
		}
	}
	var g errgroup.Group
	for range 2 * runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for i := int(next.Add(1) - 1); i < len(members) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := members[i].join(ctx); err != nil {
					return fmt.Errorf("%s: connect to the fleet: %w", members[i].node.identity, err)
				}
				connected.Add(1)
			}
			return ctx.Err()
		})
	}
	return members, g.Wait()
}

// join connects the node to the fleet, until ctx is done.
func (m *member) join(ctx context.Context) error {
	certificate := tls.Certificate{PrivateKey: m.node.key}
	for rest := []byte(m.node.certificate); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	secure := brokerTLS(m.host, m.pin)
	secure.MinVersion, secure.Certificates = tls.VersionTLS13, []tls.Certificate{certificate}
	c, err := dial(m.address, &credentials{name: wire.NewID()}, secure)
	if err != nil {
		return err
	}
	subject := wire.CommandSubject(wire.Identity(m.node.identity))
	if _, err := c.Write([]byte("SUB " + subject + " 1\r\n")); err != nil {
		c.close()
		return err
	}
	m.conn = c
	context.AfterFunc(ctx, func() { _ = c.Close() }) // wakes who listens
	return nil
}

// live listens and obeys until ctx is done. Of those that are being provisioned
// again, room has a place for each; one is called for each that is back in the
// fleet.
func (m *member) live(ctx context.Context, room chan struct{}, one func()) {
	for ctx.Err() == nil {
		err := m.listen()
		m.conn.close()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			room <- struct{}{}
			m.reprovision(ctx)
			<-room
		}
		if !m.rejoin(ctx) {
			return
		}
		if err == nil {
			one()
		}
	}
}

// listen answers commands and the broker's pings until the node is told to
// reprovision. The error says how the connection ended before that.
func (m *member) listen() error {
	for {
		in, err := m.conn.message()
		if err != nil {
			return err
		}
		if in.replyTo == "" {
			continue
		}
		reply, order, err := m.commands.Answer(in.payload)
		if err == nil {
			err = m.conn.respond(in.replyTo, reply)
		}
		if err != nil || order != nil {
			return err
		}
	}
}

// reprovision has the node enroll again as an agent does: with its token, the key
// and the certificate request that it has, and to the confirmation.
func (m *member) reprovision(ctx context.Context) {
	m.node.certificate = "" // it counts if it gets one
	(&walker{driver: m.driver}).node(ctx, m.node, time.Now())
}

// rejoin connects the node to the fleet again, and tries until ctx is done. It
// reports whether it is in.
func (m *member) rejoin(ctx context.Context) bool {
	if m.node.certificate == "" {
		return false // what is wrong with it is in the outcome
	}
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		if m.join(ctx) == nil {
			return true
		}
		m.mu.Lock()
		m.outcome.Broken++
		m.mu.Unlock()
		pause := time.NewTimer(jitter(wait))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return false
		}
	}
}
