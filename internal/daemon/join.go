package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/journal"
	"muster/provisioner/store"
)

// beginJournal sees that the journal is of this store, or makes it so, and that
// whoever restores the store knows of it.
func (d *Daemon) beginJournal(ctx context.Context, s *store.Store, conn *nats.Conn) error {
	j := d.followers.Load().journal
	now := d.opts.Now().UTC().Truncate(time.Second)
	away, err := d.wasAway(ctx, s, j.Owner())
	if err != nil {
		return err
	}
	switch id := j.Installation(); {
	case id != "" && id != s.Installation().ID:
		return fmt.Errorf("revocations.journal: %s is of installation %s, the store of %s: name the journal that belongs to it, or move this one away",
			d.cfg.journalPath(), id, s.Installation().ID)
	case id == "" || away || j.Begun().Before(s.LostAt()):
		// A restore with losses says so in the journals that it is given; this may
		// be another one, or a copy from before.
		last, err := s.LastClaims(ctx)
		if err != nil {
			return err
		}
		if err := j.Begin(journal.From{Installation: s.Installation().ID, Claims: last, At: now, Lost: id != ""}); err != nil {
			return fmt.Errorf("revocations.journal: %w", err)
		}
	}
	if j.Owner().Provisioner != d.cfg.Name {
		if err := j.Own(journal.Joined{Provisioner: d.cfg.Name, Journal: wire.NewID(), At: now}); err != nil {
			return fmt.Errorf("revocations.journal: %w", err)
		}
	}
	return d.join(ctx, s, conn, j.Owner())
}

// wasAway reports whether another journal has been ours since this one: its disk was
// not there at a start perhaps. What was done meanwhile is not in this one.
func (d *Daemon) wasAway(ctx context.Context, s *store.Store, owner journal.Joined) (bool, error) {
	if owner.Provisioner != d.cfg.Name {
		return false, nil // it is new, or was somebody else's
	}
	list, _, err := s.Provisioners(ctx)
	if err != nil {
		return false, err
	}
	away := slices.ContainsFunc(list, func(n store.NotedProvisioner) bool {
		return n.Name == owner.Provisioner && n.Journal != owner.Journal && !n.Since.Before(owner.At)
	})
	if away {
		d.opts.Log.WarnContext(ctx, "another journal was in use since this one, and it lacks what was done meanwhile: backups from before are not complete with it; make a new one",
			"path", d.cfg.journalPath())
	}
	return away, nil
}

// join has the store note this provisioner with its journal, before it serves.
//
// A backup that was made before does not have the note, and a restore of it must
// find out all the same. So another provisioner has to write down first that this
// one has joined: one that has joined itself, and is looked for therefore. The
// first of a store needs none, and neither does one that is known with the same
// journal.
//
// Every step may be the last: what was written down is written down again.
func (d *Daemon) join(ctx context.Context, s *store.Store, conn *nats.Conn, owner journal.Joined) error {
	for {
		list, revision, err := s.Provisioners(ctx)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(list), func(n store.NotedProvisioner) bool { return n.Name == d.cfg.Name })
		known := slices.ContainsFunc(list, func(n store.NotedProvisioner) bool { return n.Name == d.cfg.Name && n.Journal == owner.Journal })
		if d.external != nil && !known && len(others) < len(list) {
			if err := d.unique(ctx, conn); err != nil {
				return err
			}
		}
		me := store.NotedProvisioner{Name: d.cfg.Name, Journal: owner.Journal, Since: owner.At}
		switch {
		case d.external != nil && d.opts.Alone && len(others) > 0:
			if err := d.alone(ctx, conn); err != nil {
				return err
			}
			if err := d.followers.Load().journal.Forget(journal.Alone{At: d.opts.Now().UTC().Truncate(time.Second)}); err != nil {
				return fmt.Errorf("revocations.journal: %w", err)
			}
			others = nil
		case known:
			d.joined.Store(true)
			return nil
		case d.external != nil && len(others) > 0:
			if me.Witness, err = d.witness(ctx, conn, owner, others); err != nil {
				return err
			}
		}
		if err := s.NoteProvisioners(ctx, append(others, me), revision); err == nil || !errors.Is(err, provisioner.ErrConflict) {
			d.joined.Store(err == nil)
			return err
		}
	}
}

// alone sees that no other provisioner runs that is to be forgotten.
func (d *Daemon) alone(ctx context.Context, conn *nats.Conn) error {
	answers, _, err := askPeers(ctx, conn, question{From: d.id}, nil)
	if err == nil && len(answers) > 0 {
		err = fmt.Errorf("others are not forgotten while they run (%s): start without --alone", names(answers))
	}
	return err
}

// unique sees that no other provisioner has our name: backups would count its
// journal for ours.
func (d *Daemon) unique(ctx context.Context, conn *nats.Conn) error {
	same := func(a answer) bool { return a.Name == d.cfg.Name }
	answers, _, err := askPeers(ctx, conn, question{From: d.id}, func(a []answer) bool { return slices.ContainsFunc(a, same) })
	if err == nil && slices.ContainsFunc(answers, same) {
		err = fmt.Errorf("name: another provisioner of the name %s is running at these brokers: give each a name of its own", d.cfg.Name)
	}
	return err
}

// witness returns the name of another provisioner that has in its journal that
// we have begun ours. It waits for one.
func (d *Daemon) witness(ctx context.Context, conn *nats.Conn, owner journal.Joined, others []store.NotedProvisioner) (string, error) {
	good := func(a answer) bool { return a.Err == "" }
	said := false
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		answers, _, err := askPeers(ctx, conn, question{From: d.id, Joined: &owner}, func(a []answer) bool { return slices.ContainsFunc(a, good) })
		if i := slices.IndexFunc(answers, good); i >= 0 {
			return answers[i].Name, nil
		}
		if !said {
			var list []string
			for _, n := range others {
				list = append(list, n.Name)
			}
			d.opts.Log.WarnContext(ctx, "this provisioner is new to the store, or its journal is: waiting for another one to note that. "+
				"Start one; if none will ever run again, start this one with --alone",
				"provisioners", strings.Join(list, ", "), "path", d.cfg.journalPath(), "err", err)
			said = true
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-again.C:
		}
	}
}
