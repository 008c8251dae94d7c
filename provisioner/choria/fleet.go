package choria

import (
	"context"
	"crypto"
	"crypto/md5" //nolint:gosec // Choria names reply subjects by it
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// Fleet is a client's login at the fleet's own broker. It has either a certificate or a client token.
type Fleet struct {
	URL string

	// TLS verifies the broker, and shows Certificate if there is one.
	TLS *tls.Config

	// Certificate is for servers of protocol 1. They take requests signed with RSA, of a name such as ops.mcollective.
	Certificate *tls.Certificate

	// Client is for servers of protocol 2.
	Client *jwt.Client
}

// fleetTimeout is for a server in its fleet: it answers before it restarts.
const fleetTimeout = 10 * time.Second

var errFleet = errors.New("the provisioner is not connected to the broker of the Choria servers: see choria.fleet in " +
	"provisioner.yaml")

// caller returns the client's name in requests.
func (f *Fleet) caller() string {
	if f.Client != nil {
		return f.Client.Caller
	}
	return "choria=" + f.Certificate.Leaf.DNSNames[0] // checked by check
}

// check returns why servers would not take the client's requests, or nil.
func (f *Fleet) check() error {
	switch {
	case f.Client != nil:
		return nil
	case len(f.Certificate.Leaf.DNSNames) == 0:
		return errors.New("the certificate has no DNS name, such as ops.mcollective")
	}
	if _, ok := f.Certificate.PrivateKey.(*rsa.PrivateKey); !ok {
		return errors.New("the key is not RSA: Choria servers verify nothing else")
	}
	return nil
}

func (f *Fleet) version() Version {
	if f.Client != nil {
		return V2
	}
	return V1
}

func (f *Fleet) sign(request []byte) ([]byte, string, error) {
	if f.Client != nil {
		return f.Client.Sign(request), f.Client.Text, nil
	}
	sum := sha256.Sum256(request)
	signature, err := f.Certificate.PrivateKey.(crypto.Signer).Sign(rand.Reader, sum[:], crypto.SHA256)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate.Certificate[0]})
	return signature, string(text), err
}

// connect returns at once; the connection is made in the background, for ever.
func (f *Fleet) connect(failed nats.ErrHandler) (*nats.Conn, error) {
	options := []nats.Option{
		nats.ErrorHandler(failed),
		nats.Name(f.caller()),
		nats.Secure(f.TLS),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
	}
	if f.Client != nil {
		options = append(options, nats.Token(f.Client.Text), nats.UserJWT(
			func() (string, error) { return f.Client.Text, nil },
			func(nonce []byte) ([]byte, error) { return f.Client.Sign(nonce), nil },
		))
	}
	return nats.Connect(f.URL, options...)
}

// startups has an event of each server that is in its fleet. A client JWT needs Choria's permission to view events.
const startups = "choria.lifecycle.event.startup.server"

// runFleet hears which servers are back until ctx is done.
func (g *Gateway) runFleet(ctx context.Context) error {
	if g.cfg.Fleet == nil {
		return nil
	}
	conn, err := g.cfg.Fleet.connect(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		g.cfg.Log.ErrorContext(ctx, "broker of the Choria servers refused a message or subscription", "err", err)
		if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), startups) {
			g.deaf.Store(true)
		}
	})
	if err != nil {
		return fmt.Errorf("choria.fleet: %w", err)
	}
	defer conn.Close()
	_, err = conn.Subscribe(startups, func(m *nats.Msg) {
		g.deaf.Store(false)
		var event struct {
			Data struct {
				Identity string `json:"identity"`
			} `json:"data"`
		}
		_ = json.Unmarshal(m.Data, &event)
		if id, err := wire.ParseIdentity(event.Data.Identity); err == nil {
			if err := g.back(ctx, id); err != nil {
				g.cfg.Log.WarnContext(ctx, "lease of a server that is back not removed", "node", id, "err", err)
			}
		}
	})
	if err != nil {
		return fmt.Errorf("choria.fleet: %w", err)
	}
	g.fleet.Store(conn)
	<-ctx.Done()
	return nil
}

// Prepare ends the former exchange of a server that is to be provisioned again, so that it makes a new key. The error
// is [trust.ErrState] if a connection with the name is open already: it may be a thief's.
func (g *Gateway) Prepare(ctx context.Context, id wire.Identity) error {
	if g.cfg.Fleet == nil {
		return fmt.Errorf("%w: %w", operate.ErrNodeAway, errFleet)
	}
	l, at, err := g.cfg.Leases.Lease(ctx, id)
	if err != nil || l == nil {
		return err
	}
	open, err := g.open(ctx, l)
	if err == nil && open {
		err = fmt.Errorf("%w: a machine with this name waits at the provisioner now, and the server is in its fleet: "+
			"one of them may be a thief's", trust.ErrState)
	}
	return g.drop(ctx, l, at, err)
}

// Command sends a verb to a server in its fleet. The error is [operate.ErrNodeAway], [operate.ErrNodeSilent], or the
// server's own.
func (g *Gateway) Command(ctx context.Context, id wire.Identity, verb wire.Verb, secret wire.Secret) error {
	conn := g.fleet.Load()
	if conn == nil || !conn.IsConnected() {
		return fmt.Errorf("%w: %w", operate.ErrNodeAway, errFleet)
	}
	body, err := json.Marshal(object{
		"agent": "choria_provision", "action": string(verb), "data": object{"token": string(secret), "splay": 1},
	})
	if err != nil {
		return err
	}
	collective := g.cfg.collectives(g.cfg.Fleet.Client != nil)[0]
	caller := g.cfg.Fleet.caller()
	sum := md5.Sum([]byte(caller)) //nolint:gosec // as above
	request := &Request{
		ID:         requestID(),
		Sender:     senderName,
		Caller:     caller,
		Collective: collective,
		Agent:      "choria_provision",
		Body:       body,
		Time:       g.cfg.Now(),
	}
	request.ReplyTo = collective + ".reply." + hex.EncodeToString(sum[:]) + "." + request.ID
	text, err := request.encode(g.cfg.Fleet.version(), g.cfg.Fleet.sign)
	if err != nil {
		return err
	}
	replies, err := conn.SubscribeSync(request.ReplyTo)
	if err != nil {
		return err
	}
	defer func() { _ = replies.Unsubscribe() }()
	if err := conn.Publish(collective+".node."+string(id), text); err != nil {
		return fmt.Errorf("%w: %w", operate.ErrNodeAway, err)
	}
	ctx, cancel := context.WithTimeout(ctx, fleetTimeout)
	defer cancel()
	for {
		m, err := replies.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("%w within %v", operate.ErrNodeSilent, fleetTimeout)
		}
		if r, err := DecodeReply(m.Data); err == nil && r.Request == request.ID && r.Sender == string(id) {
			return r.result(string(verb), nil)
		}
	}
}

// contested voids the grant of a server that is being provisioned again, since a second connection shows its name.
func (g *Gateway) contested(ctx context.Context, id wire.Identity) {
	voided, err := g.cfg.Provisioner.VoidReprovision(ctx, id)
	if err != nil {
		g.cfg.Log.ErrorContext(ctx, "grant of a contested name not voided", "node", id, "err", err)
	}
	if voided {
		now := g.cfg.Now()
		g.contestedAt.Store(&now)
		g.cfg.Alarms.Set(ctx, events.AlarmContested, fmt.Errorf("%s was to be provisioned again, and two machines "+
			"showed its name", id))
	}
}
