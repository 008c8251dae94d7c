package daemon

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"muster/policies"
	"muster/provisioner/events"
)

// maxShadowQueue holds the decisions of a quarter of a second at the highest rate.
const maxShadowQueue = 1024

// A shadow evaluates a second policy. It delays no request: if it cannot keep up, it leaves out decisions.
type shadow struct {
	// Set by newShadow, then read-only.
	policy  *policies.Engine
	emit    func(events.Event)
	log     *slog.Logger
	waiting chan shadowed

	compared, differed, leftOut atomic.Uint64
}

type shadowed struct {
	in      *policies.Input
	verdict policies.Verdict
	digest  string // of the configuration
	policy  string
}

func newShadow(policy *policies.Engine, emit func(events.Event), log *slog.Logger) *shadow {
	return &shadow{
		policy:  policy,
		emit:    emit,
		log:     log,
		waiting: make(chan shadowed, maxShadowQueue),
	}
}

// observe never blocks.
func (s *shadow) observe(in *policies.Input, d *policies.Decision, _ error, asked string) {
	made := shadowed{in: in, verdict: policies.VerdictFailed, policy: asked}
	if d != nil {
		made.verdict, made.digest, made.policy = d.Verdict(), policies.ConfigurationDigest(d.Configuration), d.Digest
	}
	select {
	case s.waiting <- made:
	default:
		s.leftOut.Add(1)
	}
}

// run takes one decision at a time, so that requests keep the other cores.
func (s *shadow) run(ctx context.Context) error {
	for {
		select {
		case made := <-s.waiting:
			s.compare(ctx, made)
		case <-ctx.Done():
			s.log.InfoContext(ctx, "shadow policy", "policy", s.policy.Digest(), "compared", s.compared.Load(),
				"differed", s.differed.Load(), "left_out", s.leftOut.Load())
			return nil
		}
	}
}

func (s *shadow) compare(ctx context.Context, made shadowed) {
	verdict, why, digest := policies.VerdictFailed, []string(nil), ""
	d, err := s.policy.Decide(ctx, made.in)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		why = []string{err.Error()}
	default:
		verdict, why, digest = d.Verdict(), slices.Clone(d.Why()), policies.ConfigurationDigest(d.Configuration)
	}
	s.compared.Add(1)
	if verdict == made.verdict && (verdict != policies.VerdictAllow || digest == made.digest) {
		return
	}
	s.differed.Add(1)
	if verdict == made.verdict {
		why = []string{"another configuration"}
	}
	s.emit(events.Event{
		Type:   events.ShadowDiffers,
		Time:   made.in.Time.UTC().Truncate(time.Second),
		Node:   made.in.Identity,
		Policy: made.policy,
		Digest: s.policy.Digest(),
		Cause:  string(made.verdict) + " would be " + string(verdict) + ": " + strings.Join(why, "; "),
	})
}
