package puppet

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
)

// Runs keeps the last run of each node.
type Runs interface {
	// PutRun replaces the node's last run. It does not wait until the run can be read.
	PutRun(*fleet.Run) error

	// LastRun returns the newest run of id, or nil.
	LastRun(ctx context.Context, id wire.Identity) (*fleet.Run, error)
}

// Limits of what is kept of a report.
const (
	maxErrors     = 5
	maxErrorBytes = 300
	maxWordBytes  = 128
)

// agentReport is what is read of an agent's report.
type agentReport struct {
	Host        string          `json:"host"`
	Version     json.RawMessage `json:"configuration_version"` // a text, a number or null
	Agent       string          `json:"puppet_version"`
	Status      string          `json:"status"`
	Environment string          `json:"environment"`
	Noop        bool            `json:"noop"`
	Logs        []struct {
		Level   string `json:"level"`
		Message string `json:"message"`
		Source  string `json:"source"`
	} `json:"logs"`
	Metrics map[string]struct {
		Values [][]json.RawMessage `json:"values"` // name, label, value
	} `json:"metrics"`
}

func (s *Server) report(r *request, _ string) (any, error) {
	var said agentReport
	if err := wire.DecodeKnown(r.body, &said); err != nil {
		return nil, badDocument("report: %v", err)
	}
	if said.Host != r.name {
		return nil, badDocument("the report is of %.300q, want %q", said.Host, r.name)
	}
	if !slices.Contains([]string{fleet.RunFailed, "changed", "unchanged"}, said.Status) {
		return nil, badDocument("report: status %.80q", said.Status)
	}
	id := r.node.Identity
	run := said.run()
	run.Identity, run.At = id, s.cfg.Now().UTC()
	former, err := s.cfg.Runs.LastRun(r.Context(), id)
	if err != nil {
		return nil, err
	}
	failed := former != nil && former.Status == fleet.RunFailed && !former.At.Before(r.node.OwnedSince)
	if run.Status == fleet.RunFailed {
		run.Since = run.At
		if failed {
			run.Since = former.Since
		}
	}
	if err := s.cfg.Runs.PutRun(run); err != nil {
		return nil, err
	}
	switch {
	case run.Status == fleet.RunFailed:
		s.cfg.Provisioner.ReportRun(r.Context(), id, append(run.Errors, "the report has no error")[0])
	case failed:
		s.cfg.Provisioner.ReportRun(r.Context(), id, "")
	}
	return []string{}, nil
}

func (a *agentReport) run() *fleet.Run {
	r := &fleet.Run{
		Schema:      fleet.RunSchema,
		Status:      a.Status,
		Noop:        a.Noop,
		Version:     word(strings.Trim(string(a.Version), `"`)),
		Environment: word(a.Environment),
		Agent:       word(a.Agent),
	}
	if r.Version == "null" {
		r.Version = ""
	}
	all := a.errors()
	r.Errors = all[:min(len(all), maxErrors)]
	r.LeftOut = len(all) - len(r.Errors)
	for name, at := range map[string]*int{
		"total":       &r.Resources.Total,
		"changed":     &r.Resources.Changed,
		"failed":      &r.Resources.Failed,
		"skipped":     &r.Resources.Skipped,
		"out_of_sync": &r.Resources.OutOfSync,
	} {
		*at = a.count(name)
	}
	return r
}

// errors returns the different errors, those of facts last, since they fail no run.
func (a *agentReport) errors() (all []string) {
	const ofFacts = "Facter"
	seen := make(map[string]bool)
	for _, late := range []bool{false, true} {
		for _, l := range a.Logs {
			if late != (l.Source == ofFacts) || !slices.Contains([]string{"err", "alert", "emerg", "crit"}, l.Level) {
				continue
			}
			text := strings.Join(strings.Fields(l.Message), " ")
			if l.Source != "" && l.Source != "Puppet" {
				text = l.Source + ": " + text
			}
			if text = clip(events.Scrub(text), maxErrorBytes); !seen[text] {
				seen[text] = true
				all = append(all, text)
			}
		}
	}
	return all
}

func (a *agentReport) count(name string) int {
	for _, v := range a.Metrics["resources"].Values {
		if len(v) == 3 && string(v[0]) == strconv.Quote(name) {
			n, _ := strconv.Atoi(string(v[2]))
			return max(n, 0)
		}
	}
	return 0
}

func word(s string) string { return clip(events.Scrub(s), maxWordBytes) }

func clip(s string, n int) string { return strings.ToValidUTF8(events.Cut(s, n), "") }
