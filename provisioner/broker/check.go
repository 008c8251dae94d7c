package broker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
)

// admitTimeout is shorter than the time-out of connecting clients.
const admitTimeout = 4 * time.Second

type authentication struct {
	b        *Broker
	life     context.Context            // ends with the broker
	accounts map[string]*server.Account // set before the server starts, then read-only
}

// Check implements [server.Authentication]. It runs on the connection's goroutine for every CONNECT.
func (a *authentication) Check(c server.ClientAuthentication) bool {
	ctx, cancel := context.WithTimeout(a.life, admitTimeout)
	defer cancel()
	p, err := a.present(c)
	if err == nil {
		err = a.admit(ctx, c, p)
	}
	if err == nil {
		return true
	}
	a.b.log.refuse(ctx, p, err, a.b.cfg.Refused)
	return false
}

func (a *authentication) admit(ctx context.Context, c server.ClientAuthentication, p Presented) error {
	rechecks := a.b.rechecks.Load()
	admission, err := a.b.gate.Authorize(ctx, p)
	if err != nil {
		return err
	}
	a.register(c, admission)
	// If Recheck listed connections before this registration, it missed this one. It counts before it lists, so the
	// count has then changed.
	if admission.Account == AccountFleet && a.b.rechecks.Load() != rechecks {
		_, err = a.b.gate.Authorize(ctx, p)
	}
	return err
}

func (a *authentication) register(c server.ClientAuthentication, admission *Admission) {
	u := &server.User{
		Username:    admission.User,
		Account:     a.accounts[admission.Account],
		Permissions: permissions(admission),
	}
	if !admission.Deadline.IsZero() {
		// The server's timer uses the real clock.
		u.ConnectionDeadline = time.Now().Add(admission.Deadline.Sub(a.b.cfg.Gate.Now()))
	}
	c.RegisterUser(u)
}

// permissions returns nil if everything is allowed.
func permissions(a *Admission) *server.Permissions {
	if a.Account == AccountMuster || a.Account == AccountSystem {
		return nil
	}
	p := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: a.Publish},
		Subscribe: &server.SubjectPermission{Allow: a.Subscribe},
	}
	if a.Responses > 0 {
		p.Response = &server.ResponsePermission{MaxMsgs: a.Responses, Expires: a.ResponseTTL}
	}
	return p
}

func (a *authentication) present(c server.ClientAuthentication) (Presented, error) {
	o := c.GetOpts()
	p := Presented{
		Name:      o.Name,
		Token:     wire.Secret(o.Token),
		Nkey:      o.Nkey,
		Signature: o.Sig,
		Nonce:     string(c.GetNonce()),
	}
	if addr := c.RemoteAddress(); addr != nil {
		p.Address = addr.String()
		p.InProcess = addr.Network() == "pipe"
	}
	if c.Kind() != server.CLIENT {
		return p, &Denied{wire.CodeDenied, errors.New("not a client connection")}
	}
	if state := c.GetTLSConnectionState(); state != nil && len(state.VerifiedChains) > 0 {
		p.Certificates = state.VerifiedChains[0]
	}
	return p, nil
}
