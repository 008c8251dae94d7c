package server

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// confirm reports to the provisioner that the set is in force, and removes the pending confirmation once it is
// recorded. After an error it may be recorded too; repeating is harmless. The error may wrap errDisowned.
func (a *agent) confirm(ctx context.Context, conn *link.Conn, own *trust.Credentials, p pending) error {
	if err := a.sets.dir.Sync(); err != nil { // a power failure must not bring back the former set
		return fmt.Errorf("sync the set of files: %w", err)
	}
	reply, err := a.sendApplied(ctx, conn, own.Key, p)
	switch {
	case err != nil:
		return err
	case reply.Refusal != nil:
		r := link.Refusal{Refusal: reply.Refusal}
		err = r
		if r.Code == wire.CodeNotIssued || r.Code == wire.CodeAppliedSignature {
			err = fmt.Errorf("%w: %w", errDisowned, r)
		}
		return advice.New(err, r.Remedy())
	case reply.Applied == nil || reply.Applied.Serial != p.Serial:
		return fmt.Errorf("%w: it does not answer the confirmation", errReply)
	}
	known := trust.Authority{Known: own.Roots}
	if r := reply.Applied.Receipt; r == "" || wire.Sum([]byte(r)) != p.ReceiptSum {
		if err := checkSigned(reply, known, wire.Identity(p.Identity), own, a.clock.at); err != nil {
			return err
		}
	}
	a.announceProvisioned = true
	if err := a.sets.confirm(); err != nil {
		a.cfg.Log.WarnContext(ctx, "confirmation accepted, but its file could not be removed: the node confirms again",
			"node", p.Identity, "serial", p.Serial, "err", err)
	}
	a.cfg.hooks.steps("confirmed")
	return nil
}

func (a *agent) sendApplied(ctx context.Context, conn *link.Conn, key crypto.Signer, p pending) (*link.Reply, error) {
	signature, err := wire.Sign(key, wire.AppliedDigest(p.Identity, p.Serial, p.Digest))
	if err != nil {
		return nil, err
	}
	applied := wire.Applied{
		ID:        wire.NewID(),
		Identity:  p.Identity,
		Serial:    p.Serial,
		Digest:    p.Digest,
		Signature: signature,

		ReceiptSum: p.ReceiptSum,
	}
	return conn.Request(ctx, wire.SubjectApplied, applied.ID, &applied)
}

func (a *agent) provisioned(ctx context.Context, id wire.Identity, serial string) {
	a.cfg.Log.InfoContext(ctx, "node provisioned", "node", id, "serial", serial, "elapsed", a.elapsed())
	a.observe(Event{Kind: EventConfirmed, Serial: serial})
}

// untilNextCheck is the wait while nothing is to be confirmed.
const untilNextCheck = 24 * time.Hour

func (m *member) confirmPending(ctx context.Context, conn *link.Conn) error {
	p, err := m.sets.pending()
	if err != nil {
		// The disk is damaged: the set was complete when it came into force.
		m.problems.problem(ctx, slog.LevelError, msgUnconfirmed, advice.New(err,
			"ask an operator to run `muster node reconfigure "+string(m.identity)+"`"), "node", m.identity)
	}
	if p == nil {
		m.nextConfirm = time.Now().Add(untilNextCheck)
		return nil
	}
	if err = m.confirm(ctx, conn, m.creds, *p); err == nil {
		m.problems.solved(msgUnconfirmed)
		m.provisioned(ctx, m.identity, m.creds.Serial)
		m.nextConfirm = time.Now().Add(untilNextCheck)
		return nil
	}
	m.nextConfirm = time.Now().Add(m.confirmWait.AfterError(err))
	if ctx.Err() == nil {
		m.problems.problem(ctx, slog.LevelWarn, msgUnconfirmed, link.Explain(err, fleetPeer), "node", m.identity)
	}
	return err
}

// pending is an unsent confirmation. It is a file of the set until the provisioner has recorded it, so a restarted
// agent sends it.
type pending struct {
	Identity string `json:"identity"`
	Serial   string `json:"serial"`
	Digest   string `json:"digest"`

	ReceiptSum string `json:"receipt_sum,omitempty"` // as offered
}

func (s *sets) pending() (*pending, error) {
	path := s.dir.Path(appliedFile)
	b, err := inputfile.Read(path, inputfile.Configured, 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p pending
	if err := wire.DecodeStrict(b, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if p.Identity == "" || p.Serial == "" || p.Digest == "" {
		return nil, fmt.Errorf("%s: identity, serial or digest missing", path)
	}
	return &p, nil
}

// confirm needs no sync: if a power failure restores the file, the node confirms again, which is harmless.
func (s *sets) confirm() error { return os.Remove(s.dir.Path(appliedFile)) }
