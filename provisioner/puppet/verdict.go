package puppet

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

const (
	// maxVerdicts bounds the remembered requests: 16 KiB each at most.
	maxVerdicts = 2048

	// verdictKept is how long another connection of the agent's address gets the verdict.
	verdictKept = 10 * time.Minute

	// judgedAgain is the shortest time between two judgments of a request that was refused.
	judgedAgain = 2 * time.Second
)

// A verdict is the answer to a certificate request. Agents ask for it with a request of its own.
type verdict struct {
	identity wire.Identity
	request  wire.EnrollRequest
	edge     *provisioner.Edge
	source   provisioner.Source

	mu      sync.Mutex
	at      time.Time            // guarded by mu
	serial  string               // guarded by mu: empty if refused
	leaf    []byte               // guarded by mu: PEM
	refusal *provisioner.Refusal // guarded by mu: nil if not refused
}

// An asker is an agent's address and a name.
type asker struct {
	address string
	name    wire.Identity
}

type connectionKey struct{}

// withConnection lets a connection remember its last verdict, so that two agents behind one address do not see each
// other's.
func withConnection(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, new(atomic.Pointer[verdict]))
}

func ofConnection(ctx context.Context) *atomic.Pointer[verdict] {
	return ctx.Value(connectionKey{}).(*atomic.Pointer[verdict]) //nolint:forcetypeassert // set for every connection
}

// remember keeps a verdict for the connection and for the address.
func (s *Server) remember(ctx context.Context, v *verdict) {
	ofConnection(ctx).Store(v)
	s.verdicts.Put(asker{v.source.Address, v.identity}, v)
}

// recall returns the verdict about the request of this connection, else of its address, else nil.
func (s *Server) recall(ctx context.Context, address string, name wire.Identity) *verdict {
	if last := ofConnection(ctx).Load(); last != nil && last.identity == name {
		return last
	}
	v, _ := s.verdicts.Get(asker{address, name})
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.cfg.Now().Sub(v.at).Abs() >= verdictKept {
		return nil
	}
	return v
}

// judge asks the provisioner. The caller holds v.mu or is the only one that knows v.
func (s *Server) judge(ctx context.Context, v *verdict) {
	v.request.ID = wire.NewID()
	enrolled, err := s.cfg.Provisioner.EnrollOver(ctx, v.edge, &v.request, v.source)
	v.at, v.serial, v.leaf, v.refusal = s.cfg.Now(), "", nil, nil
	if err != nil {
		v.refusal = refusalOf(err)
		return
	}
	v.serial, v.leaf = enrolled.Serial, leafOf(enrolled.Certificate)
}

// current returns the certificate in PEM, or the refusal. A refused request is judged again, since its cause may have
// ended. A certificate is looked up, since it may have been revoked.
func (s *Server) current(ctx context.Context, v *verdict, atOnce bool) (leaf []byte, refusal *provisioner.Refusal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.refusal == nil {
		_, err := s.cfg.Provisioner.Gate.AdmitPeer(ctx, provisioner.ProtocolPuppet, v.identity, v.serial)
		if err == nil {
			return v.leaf, nil
		}
		v.serial, v.leaf, v.refusal = "", nil, refusalOf(err)
	}
	if atOnce || s.cfg.Now().Sub(v.at).Abs() >= judgedAgain {
		s.judge(ctx, v)
	}
	return v.leaf, v.refusal
}
