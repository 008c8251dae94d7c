package daemon

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
)

// maxShadowQueue holds the decisions of a quarter of a second at the highest rate.
const maxShadowQueue = 1024

// A shadow evaluates a second policy. It delays no request: if it cannot keep up, it leaves out decisions.
type shadow struct {
	*reports
	policy  *policies.Engine
	waiting chan shadowed

	compared, differed, leftOut atomic.Uint64
}

type shadowed struct {
	in     *policies.Input
	made   *policies.Decision // nil: there was none
	policy string
}

// observe never blocks.
func (s *shadow) observe(in *policies.Input, d *policies.Decision, _ error, asked string) {
	if d != nil {
		asked = d.Digest
	}
	select {
	case s.waiting <- shadowed{in: in, made: d, policy: asked}:
	default:
		s.leftOut.Add(1)
	}
}

// run takes one decision at a time, so that requests keep the other cores.
func (s *shadow) run(ctx context.Context) error {
	for {
		select {
		case next := <-s.waiting:
			s.compare(ctx, next)
		case <-ctx.Done():
			s.opts.Log.InfoContext(ctx, "shadow policy", "policy", s.policy.Digest(), "compared", s.compared.Load(),
				"differed", s.differed.Load(), "left_out", s.leftOut.Load())
			return nil
		}
	}
}

// compare follows both decisions in the same way, so that a template that fails for both is no difference.
func (s *shadow) compare(ctx context.Context, next shadowed) {
	var failed error
	if next.made != nil {
		_, failed = s.policy.Follow(ctx, next.in, next.made)
	}
	was, before, _ := outcome(next.made, failed)
	d, _, err := s.policy.Preview(ctx, next.in)
	if ctx.Err() != nil {
		return
	}
	verdict, digest, why := outcome(d, err)
	s.compared.Add(1)
	if verdict == was && (verdict != policies.VerdictAllow || digest == before) {
		return
	}
	s.differed.Add(1)
	if verdict == was {
		why = []string{"another configuration"}
	}
	s.report(events.Event{
		Type:   events.ShadowDiffers,
		Time:   next.in.Time.UTC().Truncate(time.Second),
		Node:   next.in.Identity,
		Policy: next.policy,
		Digest: s.policy.Digest(),
		Cause:  string(was) + " would be " + string(verdict) + ": " + strings.Join(why, "; "),
	})
}

// outcome returns a decision's verdict, the digest of its files and its reasons; d may be nil.
func outcome(d *policies.Decision, err error) (verdict policies.Verdict, digest string, why []string) {
	switch {
	case err != nil:
		return policies.VerdictFailed, "", []string{err.Error()}
	case d == nil:
		return policies.VerdictFailed, "", nil
	}
	return d.Verdict(), wire.Digest("", wire.Files{Configuration: d.Configuration, Certificates: d.Certificates}),
		d.Why()
}
