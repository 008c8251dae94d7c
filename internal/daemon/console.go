package daemon

import (
	"bytes"
	"context"
	"io"

	"muster/policies"
	"muster/provisioner/console"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/login"
)

// console makes the web console. It is served only where operators are over HTTPS.
func (d *Daemon) console(nodes *fleet.Index, register *register) (*console.Console, error) {
	cfg := console.Config{
		Provisioner: d.Operator(),
		Orders:      d.Orders(),
		Login:       login.New(d.Operator()),
		Fleet:       nodes,
		Nodes:       fleet.NewInspector(d.Store(), nodes),
		Events:      d.Store(),
		Webhooks:    d.webhooks,
		Components:  register.All,
		Problem: func(err error) (status int, what, remedy string) {
			p := httpapi.ProblemOf(err)
			return p.Status, p.Detail, p.Remedy
		},
		Version: d.opts.Version,
		Log:     d.opts.Log,
		Now:     d.opts.Now,
	}
	if d.reports.shadow != nil {
		cfg.Shadow = d.reports.shadow.told
		if d.reports.recorder != nil {
			cfg.Replay = d.reports.replayShadow
		}
	}
	return console.New(cfg)
}

// told says what has come of the shadow policy.
func (s *shadow) told() *console.Shadow {
	return &console.Shadow{Digest: s.policy.Digest(), Compared: s.compared.Load(), Differed: s.differed.Load(), LeftOut: s.leftOut.Load()}
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
