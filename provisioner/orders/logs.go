package orders

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// Logs are the kinds of entries that provisioners share.
type Logs struct {
	Revocations trust.Log[*trust.Revocation]  // by [trust.Revocation.LogKey]
	Pauses      Pauses                        // by [Pause.LogKey]
	Answers     Answers                       // by [Answer.LogKey]
	Grants      trust.Log[*Grant]             // by [Grant.LogKey]
	Allowances  Allowances                    // by [Allowance.LogKey]
	Signers     trust.Log[*trust.SignerEntry] // by their ids
	Operators   trust.Operators               // by their names
	Recovery    trust.Log[*Recovery]          // by [RecoveryKey]
	Unfrozen    trust.Log[*Unfreeze]          // by the tokens' ids

	// Sync brings Revocations to what the store had when it was called.
	Sync func(context.Context) error

	// Fresh returns nil while every entry that was in the store [trust.MaxAge] ago is known here, and
	// an error that wraps [trust.ErrRevocationsUnknown] else.
	Fresh func() error
}

// Grant returns the newest grant for an identity, nil if there is none, and its revision. The
// error wraps [trust.ErrUnread] if that cannot be read: it lets in no key. A grant that a recovery voids is none.
func (l *Logs) Grant(id wire.Identity) (*Grant, trust.Revision, error) {
	e, _ := l.Grants.Get(id.SubjectToken())
	if l.NewestRecovery().Voids(e.Revision) {
		return nil, e.Revision, nil
	}
	return e.Value, e.Revision, e.Unread
}

// NewestRecovery returns the newest recovery of the store, nil if there was none; its Entry is set. One that cannot be
// read voids what was there when it was written, and has not ended.
func (l *Logs) NewestRecovery() *Recovery {
	e, found := l.Recovery.Get(RecoveryKey)
	switch {
	case !found:
		return nil
	case e.Unread != nil:
		return &Recovery{Began: e.At, Entry: e.Revision}
	case e.Value.Entry != 0:
		return e.Value
	}
	r := *e.Value
	r.Entry = e.Revision
	return &r
}

// Unread are the keys whose newest entry cannot be decoded. Make it with [WatchUnread]; it is safe
// for concurrent use.
type Unread struct {
	mu  sync.Mutex
	why map[string]error // guarded by mu, by kind and key
}

// watchUnread keeps the unread entries of a log.
func watchUnread[V any](u *Unread, kind string, log trust.Log[V]) {
	log.Watch(func(key string, e trust.Entry[V]) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.why == nil {
			u.why = make(map[string]error)
		}
		if delete(u.why, kind+" "+key); e.Unread != nil {
			u.why[kind+" "+key] = e.Unread
		}
	})
}

// Err returns the cause of [events.AlarmEntryUnread], nil if every entry can be decoded.
func (u *Unread) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(u.why)) {
		return fmt.Errorf("%d entries cannot be read and let in nothing, such as the %s: %w", len(u.why), what, u.why[what])
	}
	return nil
}

// WatchUnread watches all logs but that of revocations, which keep out by being there.
func WatchUnread(l *Logs) *Unread {
	u := &Unread{}
	watchUnread(u, "pause", l.Pauses.Log)
	watchUnread(u, "verdict", l.Answers.Log)
	watchUnread(u, "grant", l.Grants)
	watchUnread(u, "allow-list entry", l.Allowances.Log)
	watchUnread(u, "signer", l.Signers)
	watchUnread(u, "operator", l.Operators.Log)
	watchUnread(u, "recovery", l.Recovery)
	watchUnread(u, "frozen token", l.Unfrozen)
	return u
}
