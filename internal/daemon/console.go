package daemon

import (
	"bytes"
	"context"
	"io"
	"time"

	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/console"
	"muster/provisioner/fleet"
)

// console makes the web console. It is served only where operators are over HTTPS.
func (d *Daemon) console(nodes *fleet.Index, register *register) (*console.Console, error) {
	cfg := console.Config{
		Provisioner: d.Operator(), Fleet: nodes, Nodes: fleet.NewInspector(d.Store(), nodes), Events: d.Store(), Attempts: d.attempts, Alarms: d.alarms.Standing, Version: d.opts.Version, Log: d.opts.Log, Now: d.opts.Now,
	}
	cfg.Components = func(ctx context.Context) ([]console.Component, error) {
		all, err := register.All(ctx)
		return componentsOf(all, register.Self().Name), err
	}
	if all := d.webhooks.List(); len(all) > 0 {
		cfg.Webhooks = func(context.Context) ([]console.Webhook, error) { return webhooksOf(d.webhooks.List()), nil }
	}
	if d.shadow != nil {
		cfg.Shadow = d.shadow.told
		if d.recorder != nil {
			cfg.Replay = d.replayShadow
		}
	}
	return console.New(cfg)
}

// componentsOf returns what the console shows of provisioners: what is not
// configured is left out. here is the name of this provisioner.
func componentsOf(all []*provisioner.HeardComponent, here string) []console.Component {
	var shown []console.Component
	for _, c := range all {
		s := console.Component{Name: c.Name, Version: c.Version, Seen: c.Heard, Gone: c.Gone, Here: c.Name == here, Alarms: c.Alarms}
		if c.Activity != nil {
			s.Refused = c.Activity.Refused
		}
		for _, f := range c.Features {
			if f.State != provisioner.FeatureDisabled || f.Reason != "" {
				s.Features = append(s.Features, console.Feature{Name: f.Name, State: string(f.State), Why: f.Reason})
			}
		}
		shown = append(shown, s)
	}
	return shown
}

// webhooksOf returns what the console shows of webhooks.
func webhooksOf(all []provisioner.Webhook) []console.Webhook {
	var shown []console.Webhook
	for _, w := range all {
		s := console.Webhook{Name: w.Name, Delivered: w.Delivered, Waiting: w.Waiting}
		if !w.FailingSince.IsZero() {
			s.Failing = w.Cause
		}
		shown = append(shown, s)
	}
	return shown
}

// told says what has come of the shadow policy.
func (s *shadow) told() *console.Shadow {
	return &console.Shadow{Digest: s.policy.Digest(), Compared: s.compared.Load(), Differed: s.differed.Load(), LeftOut: s.leftOut.Load()}
}

// replayShadow runs the shadow policy over what decisions saw in the last age, on
// one core: requests keep the others.
func (d *Daemon) replayShadow(ctx context.Context, age time.Duration) (*policies.ReplayReport, error) {
	fallback := fallbackOf(d.parts.configurator)
	replay := policies.NewReplay(policies.ReplayConfig{Next: d.parts.shadow, Live: d.parts.policy, Was: fallback, Is: fallback})
	err := d.Inputs(ctx, age, func(uint64) {}, &replayWriter{ctx: ctx, replay: replay})
	if err != nil {
		return nil, err
	}
	return replay.Report(false), nil
}

// replayWriter replays the whole lines of what is written to it.
type replayWriter struct {
	ctx    context.Context // of the replay: a writer gets none
	replay *policies.Replay
	rest   []byte
}

var _ io.Writer = (*replayWriter)(nil)

// Write implements [io.Writer].
func (w *replayWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	if end == 0 {
		return len(b), nil
	}
	if _, err := w.replay.Lines(w.ctx, w.rest[:end]); err != nil {
		return 0, err
	}
	w.rest = append(w.rest[:0], w.rest[end:]...)
	return len(b), nil
}
