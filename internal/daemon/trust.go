package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/errgroup"

	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/ca"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// followers are provisioners that follow revocations: the daemon's own and those
// of Provisioner. They live as long as the connection to the store.
type followers struct {
	ctx     context.Context
	group   *errgroup.Group
	journal *backup.Journal
}

// startFollowers opens the journal and lets provisioners be started. stop ends
// them and closes it.
func (d *Daemon) startFollowers(ctx context.Context) (stop func() error, err error) {
	j, err := backup.OpenJournal(d.cfg.JournalPath())
	if err != nil {
		return nil, fmt.Errorf("revocations.journal: %w", err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &followers{ctx: life, group: &errgroup.Group{}, journal: j}
	d.followers.Store(f)
	return func() error {
		d.followers.Store(nil)
		cancel()
		return errors.Join(f.group.Wait(), j.Close())
	}, nil
}

// journalFailed returns why the journal has failed a write, nil if it has not.
func (d *Daemon) journalFailed() error {
	if f := d.followers.Load(); f != nil {
		return f.journal.Err()
	}
	return nil
}

// provisionerOn makes a provisioner on a store, reads what it must know of
// revocations and signers, and has it followed until life is done or the daemon stops.
func (d *Daemon) provisionerOn(ctx, life context.Context, cfg provisioner.Config) (*provisioner.Provisioner, error) {
	f := d.followers.Load()
	if f == nil {
		return nil, errors.New("the store is not open")
	}
	var journal provisioner.Journal = f.journal
	if d.opts.WrapJournal != nil {
		journal = d.opts.WrapJournal(journal)
	}
	signers, err := provisioner.NewSigners(provisioner.SignersConfig{
		File:        d.parts.signers,
		Entries:     cfg.Store.Logs().Signers,
		Revocations: cfg.Store.Logs().Revocations,
		Now:         d.opts.Now,
	})
	if err != nil {
		return nil, err
	}
	cfg.Installation = d.Store().Installation().ID
	cfg.Tokens, cfg.Signers, cfg.Journal, cfg.CRLValidity = signers, signers, journal, d.cfg.CRL.Validity
	p, err := provisioner.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := p.CatchUp(ctx); err != nil {
		return nil, err
	}
	f.group.Go(func() error {
		running, end := context.WithCancel(life)
		defer end()
		defer context.AfterFunc(f.ctx, end)() //nolint:contextcheck // the other life that it has: the daemon's
		return p.Run(running)
	})
	return p, nil
}

// writeCRLs puts the newest CRL of each issuer where brokers read it.
// It reports whether it did.
func (d *Daemon) writeCRLs(ctx context.Context, all []*trust.CRL) bool {
	var text []byte
	for _, c := range all {
		text = append(text, ca.EncodeCRL(c.DER)...)
	}
	err := renameio.WriteFile(d.cfg.crlPath(), text, 0o644)
	if failed := err != nil; failed != d.crlUnwritten {
		if d.crlUnwritten = failed; failed { // once, and not with each try
			d.opts.Log.ErrorContext(ctx, "CRL not written for others", "path", d.cfg.crlPath(), "err", err)
		} else {
			d.opts.Log.InfoContext(ctx, "CRL written for others again", "path", d.cfg.crlPath())
		}
	}
	return err == nil
}

// CRL returns the newest CRL of the issuer that issues, or nil before the daemon
// serves.
func (d *Daemon) CRL() *trust.CRL {
	if p := d.provisioner.Load(); p != nil {
		return p.CRLs().Newest()
	}
	return nil
}

// CRLs returns the newest CRL of each issuer that signs some, the present one's
// first, or nil before the daemon serves.
func (d *Daemon) CRLs() []*trust.CRL {
	if p := d.provisioner.Load(); p != nil {
		return p.CRLs().All()
	}
	return nil
}

// Operator returns the daemon's own provisioner, for what operators order, or
// nil before the daemon serves.
func (d *Daemon) Operator() *provisioner.Provisioner { return d.provisioner.Load() }

// Orders returns what operators may order of the daemon's provisioner, or nil before the daemon serves.
func (d *Daemon) Orders() *operate.Orders { return d.orders.Load() }
