package daemon

import (
	"muster/provisioner/console"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/login"
)

// console is served over HTTPS only.
func (d *Daemon) console(nodes *fleet.Index, register *componentReporter) (*console.Console, error) {
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
		cfg.Shadow = d.reports.shadow.summary
	}
	return console.New(cfg)
}

func (s *shadow) summary() *console.Shadow {
	return &console.Shadow{
		Digest:   s.policy.Digest(),
		Compared: s.compared.Load(),
		Differed: s.differed.Load(),
		LeftOut:  s.leftOut.Load(),
	}
}
