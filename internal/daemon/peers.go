package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"muster/provisioner/journal"
	"muster/provisioner/store"
)

// subjectPeers is where the provisioners of an installation ask each other, in
// the account that is theirs alone.
const subjectPeers = "muster.provisioners"

// peersAnswer is how long others may take to answer; chosen: they write a line to
// their disks first, and one that is slower than that is not waited for.
const peersAnswer = 3 * time.Second

// A question is for all provisioners but the one that asks. One that asks for
// nothing is answered, too: who is there.
type question struct {
	From   string          `json:"from,omitempty"`   // the process that asks
	Backup *journal.Backup `json:"backup,omitempty"` // is about to be made
	Joined *journal.Joined `json:"joined,omitempty"` // has begun its journal
}

// An answer says that what was asked about is in the journal of the one who
// answers, on disk.
type answer struct {
	Name string `json:"name"`
	Err  string `json:"err,omitempty"` // why it is not
}

// names returns those who have answered, for people.
func names(answers []answer) string {
	var list []string
	for _, a := range answers {
		list = append(list, a.Name)
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

// askPeers asks all other provisioners, and returns the answers that have come
// once enough says so, or after [peersAnswer]. alone says that nobody was there
// to ask. A nil enough waits for the first.
func askPeers(ctx context.Context, conn *nats.Conn, q question, enough func([]answer) bool) (answers []answer, alone bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, peersAnswer)
	defer cancel()
	b, err := json.Marshal(q)
	if err != nil {
		return nil, false, err
	}
	inbox := conn.NewRespInbox()
	sub, err := conn.SubscribeSync(inbox)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }() // the connection may be gone
		err = conn.PublishRequest(subjectPeers, inbox, b)
	}
	if err != nil {
		return nil, false, fmt.Errorf("ask other provisioners: %w", err)
	}
	for {
		m, err := sub.NextMsgWithContext(waiting)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, true, nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			return answers, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("ask other provisioners: %w", err)
		}
		var a answer
		if err := json.Unmarshal(m.Data, &a); err != nil {
			continue // no provisioner's
		}
		answers = append(answers, a)
		if enough == nil || enough(answers) {
			return answers, false, nil
		}
	}
}

// answerPeers answers other provisioners from now on, until the connection is
// closed. The journal is open. A broker inside has nobody else to ask.
func (d *Daemon) answerPeers(conn *nats.Conn) error {
	if d.external == nil {
		return nil
	}
	_, err := conn.Subscribe(subjectPeers, func(m *nats.Msg) {
		var q question
		if json.Unmarshal(m.Data, &q) != nil || q.From == d.id {
			return
		}
		a := answer{Name: d.cfg.Name}
		if err := d.heed(&q); err != nil {
			a.Err = err.Error()
		}
		if b, err := json.Marshal(a); err == nil {
			_ = m.Respond(b) // who asks does without
		}
	})
	if err == nil {
		err = conn.Flush() // asked from now on
	}
	if err != nil {
		return fmt.Errorf("subscribe %s: %w", subjectPeers, err)
	}
	return nil
}

// heed brings what a question is about to our journal.
func (d *Daemon) heed(q *question) error {
	f := d.followers.Load()
	switch {
	case f == nil:
		return errNotOpen
	case q.Backup != nil:
		return f.journal.Mark(*q.Backup)
	case q.Joined != nil && !d.joined.Load():
		return errors.New("has not joined itself yet") // nobody looks for it in our journal
	case q.Joined != nil:
		return f.journal.Join(*q.Joined)
	}
	return nil
}

// markPeers asks all others whom the store notes to mark their journals, and
// returns who has done so before it returned, and who has not.
func (d *Daemon) markPeers(ctx context.Context, s *store.Store, b journal.Backup) (marked, silent []string, err error) {
	if d.external == nil {
		return nil, nil, nil
	}
	noted, _, err := s.Provisioners(ctx)
	if err != nil {
		return nil, nil, err
	}
	split := func(answers []answer) (marked, silent []string) {
		for _, n := range noted {
			switch {
			case n.Name == d.cfg.Name:
			case slices.ContainsFunc(answers, func(a answer) bool { return a.Name == n.Name && a.Err == "" }):
				marked = append(marked, n.Name)
			default:
				silent = append(silent, n.Name)
			}
		}
		return marked, silent
	}
	if _, silent = split(nil); len(silent) == 0 {
		return nil, nil, nil
	}
	conn, err := d.Connect("backup")
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	answers, _, err := askPeers(ctx, conn, question{From: d.id, Backup: &b}, func(a []answer) bool { _, silent := split(a); return len(silent) == 0 })
	marked, silent = split(answers)
	return marked, silent, err
}
