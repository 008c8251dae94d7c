package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"

	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/certificates"
	"muster/server/files"
	"muster/server/link"
	"muster/server/socket"
	"muster/server/trust"
)

// pushedFile has the specifications of the decision in force. Without it those of before stay.
const pushedFile = "certificates.json"

// DefaultSocket returns the path at which commands of this machine ask the agent with this directory.
func DefaultSocket(sslDir string) string {
	if sslDir == DefaultSSLDir && runtime.GOOS == "linux" {
		return "/run/muster-server/agent.sock"
	}
	return filepath.Join(sslDir, "agent.sock")
}

// newServices returns the keeper of the node's service certificates. Whatever fails there leaves the node in its fleet.
func (a *agent) newServices() *certificates.Manager {
	return certificates.New(certificates.Config{
		Dir:           filepath.Dir(a.sets.conf),
		State:         a.sets.own("certificates"),
		Pushed:        a.sets.dir.Path(pushedFile),
		Protected:     append([]string{a.sets.ssl}, a.state.tokenFiles()...),
		BackoffMin:    10 * a.cfg.BackoffMin,
		BackoffMax:    60 * a.cfg.BackoffMax,
		WatchInterval: a.cfg.WatchInterval,
		Clock:         a.clock.at,
		Random:        a.cfg.hooks.random,
		Log:           a.cfg.Log,
		Step:          a.cfg.hooks.steps,
	})
}

// CertificateStatuses reads the state of the service certificates of the agent with cfg, also while none runs.
func CertificateStatuses(cfg Config) ([]certificates.Status, error) {
	a, err := newAgent(cfg)
	if err != nil {
		return nil, err
	}
	return a.services.Statuses()
}

func (a *agent) runServices(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	if a.cfg.Socket != "" {
		l, err := socket.Listen(a.cfg.Socket)
		if err != nil {
			a.cfg.Log.WarnContext(ctx, "commands of this machine cannot ask the agent", "err", err)
		} else {
			all.Go(func() { socket.Serve(ctx, l, a.answer) })
		}
	}
	a.services.Run(ctx)
}

// An Answer is the answer to a [certificates.Order] on the agent's socket.
type Answer struct {
	Certificate *wire.ServiceCertificate `json:"certificate,omitempty"`
	Error       string                   `json:"error,omitempty"`       // one line, with what to do
	Final       bool                     `json:"final,omitempty"`       // the same request cannot succeed later
	RetryAfter  int                      `json:"retry_after,omitempty"` // seconds; 0: not known
}

func (a *agent) answer(ctx context.Context, request json.RawMessage) any {
	var order certificates.Order
	var answer Answer
	err := wire.DecodeStrict(request, &order)
	if err == nil {
		answer.Certificate, err = a.services.Do(ctx, order)
	}
	if err != nil {
		answer.Error = link.OneLine(advice.InText(err)).Error()
	}
	if refused, ok := errors.AsType[link.Refusal](err); ok {
		answer.Final = !wire.MeaningOf(refused.Code).Retry
		answer.RetryAfter = int(refused.Wait().Seconds())
	}
	return &answer
}

// withPushed adds a file with these specifications to a set; if they are nil, the one of before.
func (s *sets) withPushed(set []files.File, specifications map[string]wire.Specification) ([]files.File, error) {
	b, err := json.Marshal(specifications)
	if specifications == nil {
		b, err = inputfile.Read(s.dir.Path(pushedFile), inputfile.Configured, wire.MaxReplyBytes)
		if err != nil { // the services keep what they have
			return set, nil
		}
	}
	return append(set, files.File{Name: pushedFile, Data: b, Mode: 0o600}), err
}

func (d nodeContext) connected(conn *link.Conn) *certificates.Node {
	facts := func() json.RawMessage {
		if facts, err := readFacts(d.cfg.factsFile(d.token, d.conf)); err == nil {
			return facts
		}
		return d.sets.formerFacts()
	}
	ask := func(ctx context.Context, r *wire.CertificateRequest) (*wire.ServiceCertificate, error) {
		reply, err := conn.Request(ctx, wire.SubjectCertificate, r.ID, r)
		switch {
		case err != nil:
			return nil, link.Explain(err, fleetPeer)
		case reply.Refusal != nil:
			return nil, advice.New(link.Refusal{Refusal: reply.Refusal}, fmt.Sprintf(
				"an operator sees why, and what to do, with `muster certificate show %s %s`", d.identity, r.Name))
		case reply.Certificate == nil || reply.Certificate.Name != r.Name:
			return nil, fmt.Errorf("%w: it is not about service certificate %q", errReply, r.Name)
		}
		err = checkSigned(reply, trust.Authority{Known: d.creds.Roots}, d.identity, d.creds, d.clock.at)
		return reply.Certificate, err
	}
	return &certificates.Node{Identity: string(d.identity), Facts: facts, Ask: ask}
}
