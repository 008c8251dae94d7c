package provisioner_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

var errDead = errors.New("the process is dead")

// mortal is the store of a process that dies at one of its calls in the [foreground], before or after making it.
// Later calls do nothing.
type mortal struct {
	provisioner.Store
	die   context.CancelFunc
	at    int  // number of the call, from 0
	after bool // the call is still made

	mu    sync.Mutex
	calls int   // guarded by mu
	dead  bool  // guarded by mu
	slow  error // guarded by mu: an error that has nothing to do with the death
}

// foreground marks the calls that a mortal counts. Background calls come at any time.
type foreground struct{}

// Kinds of foregrounds.
const (
	ofAnOperator = "an operator's order"
	ofANode      = "a node's request" // which syncs only if the last sync is too old
)

// call makes a call unless the process is dead.
func call[T any](ctx context.Context, m *mortal, do func() (T, error)) (T, error) {
	if ctx.Value(foreground{}) != nil {
		return counted(m, do)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		var none T
		return none, errDead
	}
	return do()
}

// counted makes a counted call unless the process is dead.
func counted[T any](m *mortal, do func() (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none T
	if m.dead {
		return none, errDead
	}
	m.calls++
	if m.calls-1 != m.at {
		r, err := do()
		m.met(err)
		return r, err
	}
	if m.after {
		_, err := do()
		m.met(err)
	}
	m.dead = true
	m.die()
	return none, errDead
}

// met keeps an error of a slow store: then the number of calls is not as expected. m.mu is held.
func (m *mortal) met(err error) {
	if err != nil && !errors.Is(err, trust.ErrConflict) {
		m.slow = err
	}
}

func (m *mortal) Record(ctx context.Context, id wire.Identity) (*provisioner.Record, trust.Revision, error) {
	r, err := call(ctx, m, func() (provisioner.Revised, error) {
		r, revision, err := m.Store.Record(ctx, id)
		return provisioner.Revised{Record: r, Revision: revision}, err
	})
	return r.Record, r.Revision, err
}

func (m *mortal) Put(ctx context.Context, r *provisioner.Record, after trust.Revision) (trust.Revision, error) {
	return call(ctx, m, func() (trust.Revision, error) { return m.Store.Put(ctx, r, after) })
}

func (m *mortal) Logs() *orders.Logs {
	return testbed.WrapLogs(m.Store.Logs(), func(ctx context.Context, _ string, put testbed.Put) (trust.Revision,
		error) {
		return call(ctx, m, put)
	})
}

func (m *mortal) Claims(ctx context.Context, tid jwt.TokenID, after trust.Revision,
	each func(*trust.ClaimEntry, trust.Revision) error) error {
	_, err := call(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.Claims(ctx, tid, after, each) })
	return err
}

func (m *mortal) AppendClaims(ctx context.Context, tid jwt.TokenID, e *trust.ClaimEntry,
	after trust.Revision) (trust.Revision, error) {
	return call(ctx, m, func() (trust.Revision, error) { return m.Store.AppendClaims(ctx, tid, e, after) })
}

func (m *mortal) History(ctx context.Context, id wire.Identity) ([]provisioner.Revised, bool, error) {
	complete := false
	h, err := call(ctx, m, func() (h []provisioner.Revised, err error) {
		h, complete, err = m.Store.History(ctx, id)
		return h, err
	})
	return h, complete, err
}

// found is the result of a read with its revision.
type found[T any, At any] struct {
	what T
	at   At
}

func (m *mortal) Waiter(ctx context.Context, id wire.Identity, keyHash string) (*waiting.Key, trust.Revision, error) {
	r, err := call(ctx, m, func() (found[*waiting.Key, trust.Revision], error) {
		w, at, err := m.Store.Waiter(ctx, id, keyHash)
		return found[*waiting.Key, trust.Revision]{w, at}, err
	})
	return r.what, r.at, err
}

func (m *mortal) DropWaiter(ctx context.Context, id wire.Identity, keyHash string, upTo trust.Revision) error {
	_, err := call(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.DropWaiter(ctx, id, keyHash, upTo) })
	return err
}

func (m *mortal) Waiters(ctx context.Context, id wire.Identity, each func(*waiting.Key, trust.Revision) error) error {
	_, err := call(ctx, m, func() (struct{}, error) { return struct{}{}, m.Store.Waiters(ctx, id, each) })
	return err
}

func (m *mortal) NoteToken(info *trust.TokenInfo) {
	_, _ = counted(m, func() (struct{}, error) { m.Store.NoteToken(info); return struct{}{}, nil })
}

func (m *mortal) NotedToken(ctx context.Context, tid jwt.TokenID) (*trust.TokenInfo, error) {
	return call(ctx, m, func() (*trust.TokenInfo, error) { return m.Store.NotedToken(ctx, tid) })
}

// dying enrolls a node in a new process that dies at this call. It returns the number of calls and the node's reply.
func dying(t *testing.T, f *testbed.Fleet, at int, after bool, n *simnode.Node) (calls int, err error) {
	t.Helper()
	return dyingIn(t, f, at, after, func(ctx context.Context, p *provisioner.Provisioner) error {
		_, err := p.Enroll(context.WithValue(ctx, foreground{}, ofANode), n.Request(),
			provisioner.Source{Address: "192.0.2.1"})
		return err
	})
}

// dyingIn runs what in a new process that dies at this call.
func dyingIn(t *testing.T, f *testbed.Fleet, at int, after bool,
	what func(context.Context, *provisioner.Provisioner) error) (calls int, err error) {
	t.Helper()
	ctx, die := context.WithCancel(f.Context())
	defer die()
	m := &mortal{die: die, at: at, after: after}
	p := f.ProvisionerFor(ctx, func(s provisioner.Store) provisioner.Store { m.Store = s; return m })
	err = what(context.WithValue(ctx, foreground{}, ofAnOperator), p)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls, err
}
