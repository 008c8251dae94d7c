package daemon

import (
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
	}
	return console.New(cfg)
}

// told says what has come of the shadow policy.
func (s *shadow) told() *console.Shadow {
	return &console.Shadow{Digest: s.policy.Digest(), Compared: s.compared.Load(), Differed: s.differed.Load(), LeftOut: s.leftOut.Load()}
}
