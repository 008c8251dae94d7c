package provisioner

import (
	"context"
	"fmt"
	"sync"
)

// A trustEntry is an entry about a signer, an operator or a pattern of the allow-list.
type trustEntry interface {
	moment() trustMoment
	LogKey() string
}

// An entryJournal writes the entries of one log to the journal, which is outside the store.
// An entry that is not in the journal when the process ends is journaled by the next start.
type entryJournal[E trustEntry] struct {
	what   string
	log    Log[E]
	append func(E) error

	writing sync.Mutex // one write at a time, in order

	mu        sync.Mutex
	journaled map[string]trustMoment // guarded by mu: the newest of each key
	waiting   []E                    // guarded by mu: applied and not journaled
}

// journalEntries returns the journal's writer of a log. The journal has all of known.
func journalEntries[E trustEntry](what string, log Log[E], known []E, write func(E) error) *entryJournal[E] {
	j := &entryJournal[E]{what: what, log: log, append: write, journaled: make(map[string]trustMoment)}
	for _, e := range known {
		j.journaled[e.LogKey()] = e.moment()
	}
	log.Watch(j.applied)
	return j
}

// applied takes in an entry of the log.
func (j *entryJournal[E]) applied(key string, e Entry[E]) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Unread != nil || !j.journaled[key].lacks(e.Value.moment()) {
		return
	}
	j.journaled[key] = e.Value.moment()
	j.waiting = append(j.waiting, e.Value)
}

// write journals what was applied. After an error it tries again with the next call.
func (j *entryJournal[E]) write() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	entries := j.waiting
	j.waiting = nil
	j.mu.Unlock()
	for i, e := range entries {
		if err := j.append(e); err != nil {
			j.mu.Lock()
			j.waiting = append(entries[i:], j.waiting...)
			j.mu.Unlock()
			return fmt.Errorf("journal: %s: %w", j.what, err)
		}
	}
	return nil
}

// restore writes to the log what the journal has and the store has forgotten, since it was put
// back to what it once was. It may end at any step: what was written is not forgotten any more.
func (j *entryJournal[E]) restore(ctx context.Context, known []E) error {
	for _, e := range known {
		newest, _ := j.log.Get(e.LogKey())
		if newest.Unread != nil || !newest.Value.moment().forgets(e.moment()) {
			continue
		}
		if _, err := j.log.Put(ctx, e.LogKey(), e, newest.Revision); err != nil {
			return fmt.Errorf("%s of the journal: %w", j.what, err)
		}
	}
	return nil
}

// entryJournals are those of a provisioner with a journal; nil without one.
type entryJournals struct {
	signers    *entryJournal[*SignerEntry]
	operators  *entryJournal[*OperatorEntry]
	allowances *entryJournal[*Allowance]
}

// restore is that of each.
func (j *entryJournals) restore(ctx context.Context, journal Journal, logs *Logs) error {
	if journal == nil {
		return nil
	}
	signers, operators, allowances := journal.Signers(), journal.Operators(), journal.Allowances()
	j.signers = journalEntries("signers", logs.Signers, signers, journal.AppendSigner)
	j.operators = journalEntries("operators", logs.Operators, operators, journal.AppendOperator)
	j.allowances = journalEntries("allow-list", logs.Allowances, allowances, journal.AppendAllowance)
	if err := j.signers.restore(ctx, signers); err != nil {
		return err
	}
	if err := j.operators.restore(ctx, operators); err != nil {
		return err
	}
	return j.allowances.restore(ctx, allowances)
}

// write is that of each.
func (j *entryJournals) write() error {
	if j.signers == nil {
		return nil
	}
	for _, write := range []func() error{j.signers.write, j.operators.write, j.allowances.write} {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}
