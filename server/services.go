package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

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

// services are the node's service certificates. Whatever fails there leaves the node in its fleet.
type services struct {
	*certificates.Manager
	factsFile atomic.Value // string
}

func (cfg *Config) services() certificates.Config {
	beside := filepath.Dir(cfg.ConfFile)
	if absolute, err := filepath.Abs(beside); err == nil {
		beside = absolute
	}
	return certificates.Config{
		Specifications: filepath.Join(beside, "certificates.d"),
		Actions:        filepath.Join(beside, "actions.d"),
		Settings:       filepath.Join(beside, "certificates.yaml"),
		State:          filepath.Join(cfg.SSLDir, "certificates"),
		Protected:      append([]string{cfg.SSLDir, cfg.ConfFile}, (&state{cfg: *cfg}).tokenFiles()...),
		BackoffMin:     10 * cfg.BackoffMin,
		BackoffMax:     60 * cfg.BackoffMax,
		Random:         cfg.hooks.random,
		Log:            cfg.Log,
		Step:           cfg.hooks.steps,
	}
}

func (a *agent) newServices() *services {
	s := &services{}
	cfg := a.cfg.services()
	cfg.Now = a.clock.now
	cfg.Facts = func() json.RawMessage {
		file, _ := s.factsFile.Load().(string)
		if facts, err := readFacts(file); err == nil {
			return facts
		}
		return a.sets.formerFacts()
	}
	s.Manager = certificates.New(cfg)
	return s
}

// CertificateStatuses reads the state of the service certificates of the agent with cfg, also while none runs.
func CertificateStatuses(cfg Config) ([]certificates.Status, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return certificates.Statuses(cfg.services())
}

// runServices works until ctx is done.
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
	if err := a.services.Run(ctx); err != nil && ctx.Err() == nil {
		a.cfg.Log.ErrorContext(ctx, "service certificates are not renewed", "err", advice.InText(err))
	}
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

// push gives the services what the set in force says.
func (d nodeContext) push(ctx context.Context) {
	d.services.factsFile.Store(d.cfg.factsFile(d.token, d.conf))
	var pushed map[string]wire.Specification
	b, err := d.sets.pushed()
	if err == nil {
		err = wire.DecodeStrict(b, &pushed)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.cfg.Log.WarnContext(ctx, "pushed service certificates could not be read: those of before stay",
			"node", d.identity, "err", err)
		pushed = nil
	}
	d.services.Push(pushed)
}

func (s *sets) pushed() ([]byte, error) {
	return inputfile.Read(s.dir.Path(pushedFile), inputfile.Configured, wire.MaxReplyBytes)
}

// withPushed adds a file with these specifications to a set; if they are nil, the one of before.
func (s *sets) withPushed(set []files.File, specifications map[string]wire.Specification) ([]files.File, error) {
	b, err := json.Marshal(specifications)
	if specifications == nil {
		if b, _ = s.pushed(); b == nil { // the services keep what they have
			return set, nil
		}
	}
	return append(set, files.File{Name: pushedFile, Data: b, Mode: 0o600}), err
}

// ask returns how the services ask a provisioner over conn.
func (d nodeContext) ask(conn *link.Conn) certificates.Asker {
	return func(ctx context.Context, r *wire.CertificateRequest) (*wire.ServiceCertificate, error) {
		request := *r
		request.ID, request.Identity = wire.NewID(), string(d.identity)
		reply, err := conn.Request(ctx, wire.SubjectCertificate, request.ID, &request)
		switch {
		case err != nil:
			return nil, link.Explain(err, fleetPeer)
		case reply.Refusal != nil:
			return nil, advice.New(link.Refusal{Refusal: reply.Refusal}, fmt.Sprintf(
				"an operator sees why, and what to do, with `muster certificate show %s %s`", d.identity, r.Name))
		case reply.Certificate == nil || reply.Certificate.Name != r.Name:
			return nil, fmt.Errorf("%w: it is not about service certificate %q", errReply, r.Name)
		}
		known := trust.Authority{Known: d.creds.Roots}
		if err := checkSigned(reply, known, d.identity, d.creds, d.clock.at); err != nil {
			return nil, err
		}
		return reply.Certificate, nil
	}
}
