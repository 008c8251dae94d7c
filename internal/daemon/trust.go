package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/errgroup"

	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/ca"
	"muster/provisioner/trust"
)

// followers live as long as the store connection.
type followers struct {
	ctx     context.Context
	group   *errgroup.Group
	journal *backup.Journal
}

func (d *Daemon) startFollowers(ctx context.Context) (stop func() error, err error) {
	j, err := backup.OpenJournal(d.cfg.JournalPath())
	if err != nil {
		return nil, fmt.Errorf("revocations.journal: %w", err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &followers{ctx: life, group: &errgroup.Group{}, journal: j}
	d.live.followers.Store(f)
	return func() error {
		d.live.followers.Store(nil)
		cancel()
		return errors.Join(f.group.Wait(), j.Close())
	}, nil
}

// provisionerOn runs a provisioner until life is done or the daemon stops.
func (d *Daemon) provisionerOn(ctx, life context.Context, cfg provisioner.Config) (*provisioner.Provisioner, error) {
	f := d.live.followers.Load()
	if f == nil {
		return nil, errors.New("the store is not open")
	}
	signers, err := trust.NewSigners(trust.SignersConfig{
		File:        d.parts.signers,
		Entries:     cfg.Store.Logs().Signers,
		Revocations: cfg.Store.Logs().Revocations,
		Now:         d.opts.Now,
	})
	if err != nil {
		return nil, err
	}
	cfg.Signers, cfg.Journal = signers, f.journal
	p := provisioner.New(cfg)
	had := len(f.journal.Entries())
	if err := p.CatchUp(ctx); err != nil {
		return nil, err
	}
	if lacked := len(f.journal.Entries()) - had; lacked > 0 {
		d.opts.Log.WarnContext(ctx, "journal lacked revocations of the store, they are written again",
			"path", d.cfg.JournalPath(), "messages", lacked)
	}
	f.group.Go(func() error {
		running, end := context.WithCancel(life)
		defer end()
		defer context.AfterFunc(f.ctx, end)() //nolint:contextcheck // the other life that it has: the daemon's
		return p.Run(running)
	})
	return p, nil
}

// writeCRLs reports whether it could write the file of all CRLs.
func (d *Daemon) writeCRLs(ctx context.Context, all []*trust.CRL) bool {
	var text []byte
	for _, c := range all {
		text = append(text, ca.EncodeCRL(c.DER)...)
	}
	path := filepath.Join(d.cfg.DataDir, "crl.pem")
	err := renameio.WriteFile(path, text, 0o644)
	if err != nil {
		d.opts.Log.ErrorContext(ctx, "CRL file not written", "path", path, "err", err)
	}
	return err == nil
}
