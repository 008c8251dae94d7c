package orders

import (
	"errors"
	"fmt"
	"time"

	"muster/jwt"
	"muster/provisioner/trust"
)

// RecoverySchema is the version of the JSON form of a [Recovery] and an [Unfreeze].
const RecoverySchema = 1

// RecoveryKey is the key of the log's only recovery. Its first entry is written by a restore, or by an operator who accepts
// a loss, while no provisioner serves from the store.
const RecoveryKey = "epoch"

// A Recovery says that the store may lack what was written before it: it was restored from a backup, or went on with
// an accepted loss. What lets in is void then if it is older, for good: grants, approvals, and the uses of limited
// tokens that were signed before. Until an operator ends it, a name that is not on record needs an approval that names
// the key, and a node whose certificate is not on record may come back by it.
type Recovery struct {
	Schema      int            `json:"schema"`
	Epoch       uint64         `json:"epoch"`           // 1 for the first of a store, one more for each
	Began       time.Time      `json:"began"`           // UTC, to the second; limited tokens that were signed until then are frozen
	Entry       trust.Revision `json:"entry,omitempty"` // of its beginning, once it has ended; entries before that are void
	Ended       time.Time      `json:"ended,omitzero"`
	EndedBy     *trust.Cause   `json:"ended_by,omitempty"`
	Lost        string         `json:"lost,omitempty"`   // what is known to be missing
	Backup      string         `json:"backup,omitempty"` // id of the backup, of a restore
	trust.Cause                // of its beginning
}

// Check reports what about a recovery cannot be.
func (r *Recovery) Check() error {
	switch {
	case r.Schema != RecoverySchema:
		return fmt.Errorf("recovery: schema %d, want %d", r.Schema, RecoverySchema)
	case r.Epoch == 0 || r.Began.IsZero():
		return fmt.Errorf("recovery %d of %s: want an epoch and a time", r.Epoch, r.Began)
	}
	return r.Cause.Check()
}

// Voids reports whether an entry of a grant or an approval is void. It may be called on nil.
func (r *Recovery) Voids(at trust.Revision) bool { return r != nil && at < r.Entry }

// freezes reports whether a token that was signed at a time has a number of uses that is not known. It may be called on
// nil.
func (r *Recovery) freezes(signed time.Time) bool { return r != nil && !signed.After(r.Began) }

// An Unfreeze says how many uses a token has that a recovery has frozen.
type Unfreeze struct {
	Schema int         `json:"schema"`
	Epoch  uint64      `json:"epoch"` // of the recovery: a later one freezes the token again
	Token  jwt.TokenID `json:"tid"`
	Uses   int         `json:"uses"` // in all, with those that were on record when it was said
	At     time.Time   `json:"at"`
	trust.Cause
}

// Check reports what about it cannot be.
func (u *Unfreeze) Check() error {
	if u.Schema != RecoverySchema {
		return fmt.Errorf("unfreeze: schema %d, want %d", u.Schema, RecoverySchema)
	}
	return errors.Join(trust.CheckTokenID(u.Token), u.Cause.Check())
}

// InRecovery returns the recovery that the store is in, nil if it is in none.
func (l *Logs) InRecovery() *Recovery {
	if r := l.NewestRecovery(); r != nil && r.Ended.IsZero() {
		return r
	}
	return nil
}

// FrozenBy returns the recovery that has frozen a limited token, nil if none has. A token that was signed after its
// beginning has lost no use; one that does not say when it was signed may have.
func (l *Logs) FrozenBy(tid jwt.TokenID, issued time.Time) *Recovery {
	r := l.NewestRecovery()
	if !r.freezes(issued) || l.unfrozen(tid) != nil {
		return nil
	}
	return r
}

// unfrozen returns what an operator has said of a token since the newest recovery, nil if nothing.
func (l *Logs) unfrozen(tid jwt.TokenID) *Unfreeze {
	r := l.NewestRecovery()
	if r == nil {
		return nil
	}
	u, found := l.Unfrozen.Get(string(tid))
	if !found || u.Unread != nil || u.Value.Epoch != r.Epoch {
		return nil
	}
	return u.Value
}

// UsesOf returns how many uses a limited token has in all.
func (l *Logs) UsesOf(tid jwt.TokenID, signed int) int {
	if u := l.unfrozen(tid); u != nil {
		return min(signed, u.Uses)
	}
	return signed
}
