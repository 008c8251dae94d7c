package server

import (
	"cmp"
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

// pushedFile has the specifications of the decision in force. A set without it keeps those of before.
const pushedFile = "certificates.json"

// DefaultSocket returns the path of the agent's socket, at which commands of this machine ask it: below /run for the
// agent with the default directory, else in its directory. It is "" on Windows.
func DefaultSocket(sslDir string) string {
	switch {
	case runtime.GOOS == "windows":
		return ""
	case sslDir != DefaultSSLDir:
		return filepath.Join(sslDir, "agent.sock")
	case runtime.GOOS == "linux":
		return "/run/muster-server/agent.sock"
	}
	return "/var/run/muster-server/agent.sock"
}

// services are the node's service certificates. Whatever fails there leaves the node in its fleet.
type services struct {
	*certificates.Manager
	factsFile atomic.Value // string
}

func (cfg *Config) services() certificates.Config {
	conf := filepath.Dir(cfg.ConfFile)
	return certificates.Config{
		Specifications: filepath.Join(conf, "certificates.d"),
		Actions:        filepath.Join(conf, "actions.d"),
		Settings:       filepath.Join(conf, "certificates.yaml"),
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
	Error       string                   `json:"error,omitempty"`
	Remedy      string                   `json:"remedy,omitempty"`
	Code        wire.Code                `json:"code,omitempty"`        // of a provisioner's refusal
	Final       bool                     `json:"final,omitempty"`       // the same request cannot succeed later
	RetryAfter  int                      `json:"retry_after,omitempty"` // seconds; 0: not known
}

func (a *agent) answer(ctx context.Context, request []byte) any {
	var order certificates.Order
	var answer Answer
	err := wire.DecodeStrict(request, &order)
	if err == nil {
		answer.Certificate, err = a.services.Do(ctx, order)
	}
	if err != nil {
		answer.Error, answer.Remedy = link.OneLine(err).Error(), advice.Of(err)
	}
	if refused, ok := errors.AsType[link.Refusal](err); ok {
		answer.Code, answer.Final = refused.Code, !wire.MeaningOf(refused.Code).Retry
		answer.RetryAfter = int(refused.Wait().Seconds())
	}
	return &answer
}

// push gives the services what the set in force says.
func (d nodeContext) push(ctx context.Context) {
	d.services.factsFile.Store(d.cfg.factsFile(d.token, d.conf))
	var pushed map[string]wire.Specification
	b, err := d.sets.pushed()
	if err == nil && b != nil {
		err = wire.DecodeStrict(b, &pushed)
	}
	if err != nil {
		d.cfg.Log.WarnContext(ctx, "pushed service certificates could not be read: those of before stay",
			"node", d.identity, "err", err)
		pushed = nil
	}
	d.services.Push(pushed)
}

// pushed returns nil if there is no file.
func (s *sets) pushed() ([]byte, error) {
	b, err := inputfile.Read(s.dir.Path(pushedFile), inputfile.Configured, wire.MaxReplyBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// pushedFiles returns the file of a set with these specifications, or with those of before if they are nil.
func (s *sets) pushedFiles(specifications map[string]wire.Specification) (list []files.File, err error) {
	var b []byte
	if specifications != nil {
		b, err = json.Marshal(specifications)
	} else if b, _ = s.pushed(); b == nil { // the services keep what they have
		return nil, nil
	}
	return []files.File{{Name: pushedFile, Data: b, Mode: 0o600}}, err
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
			refused := link.Refusal{Refusal: reply.Refusal}
			return nil, advice.New(refused, cmp.Or(serviceRemedy(refused.Code, d.identity, r.Name), refused.Remedy()))
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

// serviceRemedy returns the remedy of a code whose meaning speaks of nodes, else "".
func serviceRemedy(code wire.Code, id wire.Identity, name string) string {
	switch code {
	case wire.CodeApprovalPending:
		return fmt.Sprintf("ask an operator to run `muster certificate approve %s %s`", id, name)
	case wire.CodeDenied, wire.CodeQuotaExceeded, wire.CodePolicyFailed, wire.CodeCertificateFailed:
		return fmt.Sprintf("ask an operator to run `muster certificate show %s %s`, which says why", id, name)
	}
	return ""
}
