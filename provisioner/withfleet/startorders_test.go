package provisioner_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// oneByOne counts the entries of operators that were asked for one by one.
type oneByOne struct {
	provisioner.Store
	met *atomic.Int64
}

func met[E any](s oneByOne, e *E, at provisioner.Sequence, err error) (*E, provisioner.Sequence, error) {
	if e != nil {
		s.met.Add(1)
	}
	return e, at, err
}

func (s oneByOne) NextPause(ctx context.Context, after provisioner.Sequence) (*provisioner.Pause, provisioner.Sequence, error) {
	e, at, err := s.Store.NextPause(ctx, after)
	return met(s, e, at, err)
}

func (s oneByOne) NextAnswer(ctx context.Context, after provisioner.Sequence) (*provisioner.Answer, provisioner.Sequence, error) {
	e, at, err := s.Store.NextAnswer(ctx, after)
	return met(s, e, at, err)
}

func (s oneByOne) NextAllowance(ctx context.Context, after provisioner.Sequence) (*provisioner.Allowance, provisioner.Sequence, error) {
	e, at, err := s.Store.NextAllowance(ctx, after)
	return met(s, e, at, err)
}

// TestAStartReadsWhatOperatorsSaidAtOnce starts a provisioner by a store in which there are
// verdicts, names and pauses of former times: one question for each takes as long as the way
// to the store, as often as operators ever said something.
func TestAStartReadsWhatOperatorsSaidAtOnce(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	store, now := f.Daemon().Store(), f.Clock.Now().UTC()
	const each = 50
	for i := range each {
		name := wire.Identity(fmt.Sprintf("web%d.example.net", i))
		err := store.PutAnswer(f.Context(), &provisioner.Answer{
			Schema: provisioner.AnswerSchema, ID: wire.NewID(), Identity: name, KeyHash: strings.Repeat("0", 64), Verdict: provisioner.VerdictReject, At: now, Cause: operator,
		}, 0)
		if err == nil {
			err = store.PutAllowance(f.Context(), &provisioner.Allowance{Schema: provisioner.AllowanceSchema, ID: wire.NewID(), Pattern: wire.Pattern(name), At: now, Cause: operator}, 0)
		}
		if err == nil {
			err = store.PutPause(f.Context(), &provisioner.Pause{Schema: provisioner.PauseSchema, Site: jwt.Site(fmt.Sprint("site", i)), At: now, Cause: operator}, provisioner.AnyRevision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var n atomic.Int64
	p := f.Provisioner(func(s provisioner.Store) provisioner.Store { return oneByOne{s, &n} })
	if got := n.Load(); got >= each {
		t.Errorf("%d entries of %d asked for one by one", got, 3*each)
	}
	allowed, err := p.Allowances(f.Context())
	if err != nil || len(allowed) != each || len(p.Rejected()) != each || len(p.Pauses()) != each {
		t.Errorf("known are %d names (%v), %d rejections and %d pauses, want %d of each", len(allowed), err, len(p.Rejected()), len(p.Pauses()), each)
	}
}
