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

// Logs has the logs that provisioners share.
type Logs struct {
	Revocations trust.Log[*trust.Revocation]  // by [trust.Revocation.LogKey]
	Pauses      Pauses                        // by [Pause.LogKey]
	Answers     Answers                       // by [Answer.LogKey]
	Grants      trust.Log[*Grant]             // by [Grant.LogKey]
	Allowances  Allowances                    // by [Allowance.LogKey]
	Signers     trust.Log[*trust.SignerEntry] // by id
	Operators   trust.Operators               // by name
	Sessions    trust.Log[*Sessions]          // by [Sessions.LogKey]
	Recovery    trust.Log[*Recovery]          // by [RecoveryKey]
	Unfrozen    trust.Log[*Unfreeze]          // by token id

	// Sync updates Revocations from the store.
	Sync func(context.Context) error

	// Fresh returns nil if every entry older than [trust.MaxAge] is known here, else an error that wraps
	// [trust.ErrRevocationsUnknown].
	Fresh func() error
}

// Grant returns the newest grant for an identity and its revision; nil if none or void by a recovery. An unreadable one
// admits no key: the error wraps [trust.ErrUnread].
func (l *Logs) Grant(id wire.Identity) (*Grant, trust.Revision, error) {
	e, _ := l.Grants.Get(id.SubjectToken())
	if l.NewestRecovery().Voids(e.Revision) {
		return nil, e.Revision, nil
	}
	return e.Value, e.Revision, e.Unread
}

// NewestRecovery returns the newest recovery with its Entry set, or nil. An unreadable one counts as not ended, and
// voids older entries.
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

// Unread has the keys whose newest entry is unreadable. It is safe for concurrent use.
type Unread struct {
	mu  sync.Mutex
	why map[string]error // guarded by mu, by kind and key
}

func watchUnread[V any](u *Unread, kind string, log trust.Log[V]) {
	log.Watch(func(key string, e trust.Entry[V]) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if delete(u.why, kind+" "+key); e.Unread != nil {
			u.why[kind+" "+key] = e.Unread
		}
	})
}

// Err returns the cause of [events.AlarmEntryUnread], or nil.
func (u *Unread) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(u.why)) {
		return fmt.Errorf("%d entries cannot be read and admit no node, for example the %s: %w", len(u.why), what,
			u.why[what])
	}
	return nil
}

// WatchUnread watches all logs but Revocations: an unreadable revocation still revokes.
func WatchUnread(l *Logs) *Unread {
	u := &Unread{why: make(map[string]error)}
	watchUnread(u, "pause", l.Pauses.Log)
	watchUnread(u, "verdict", l.Answers.Log)
	watchUnread(u, "grant", l.Grants)
	watchUnread(u, "allow-list entry", l.Allowances.Log)
	watchUnread(u, "signer", l.Signers)
	watchUnread(u, "operator", l.Operators.Log)
	watchUnread(u, "session", l.Sessions)
	watchUnread(u, "recovery", l.Recovery)
	watchUnread(u, "frozen token", l.Unfrozen)
	return u
}
