package orders

import (
	"errors"
	"fmt"
	"time"

	"muster/jwt"
	"muster/provisioner/trust"
)

// RecoverySchema is the version of the JSON forms.
const RecoverySchema = 1

// RecoveryKey is the only key of the log. Each recovery is first written while no provisioner serves.
const RecoveryKey = "epoch"

// A Recovery says that the store may lack older data, after a restore or an accepted loss. Older grants and approvals
// are void for good, and older limited tokens are frozen. Until its end, unknown names need an approval.
type Recovery struct {
	Schema      int            `json:"schema"`
	Epoch       uint64         `json:"epoch"`           // counts from 1
	Began       time.Time      `json:"began"`           // UTC, in seconds; older limited tokens are frozen
	Entry       trust.Revision `json:"entry,omitempty"` // revision of its start, set at its end; older entries are void
	Ended       time.Time      `json:"ended,omitzero"`
	EndedBy     *trust.Cause   `json:"ended_by,omitempty"`
	Lost        string         `json:"lost,omitempty"`   // what is known to be missing
	Backup      string         `json:"backup,omitempty"` // id of the restored backup
	trust.Cause                // of its beginning
}

// Check returns what is invalid.
func (r *Recovery) Check() error {
	switch {
	case r.Schema != RecoverySchema:
		return fmt.Errorf("recovery: schema %d, want %d", r.Schema, RecoverySchema)
	case r.Epoch == 0 || r.Began.IsZero():
		return fmt.Errorf("recovery %d of %s: want an epoch and a time", r.Epoch, r.Began)
	}
	return r.Cause.Check()
}

// Voids reports whether a grant or approval of this revision is void; r may be nil.
func (r *Recovery) Voids(at trust.Revision) bool { return r != nil && at < r.Entry }

// r may be nil.
func (r *Recovery) freezes(signed time.Time) bool { return r != nil && !signed.After(r.Began) }

// An Unfreeze is an operator's order that sets the uses of a frozen token.
type Unfreeze struct {
	Schema int         `json:"schema"`
	Epoch  uint64      `json:"epoch"` // a later recovery freezes the token again
	Token  jwt.TokenID `json:"tid"`
	Uses   int         `json:"uses"` // in all, including those on record
	At     time.Time   `json:"at"`
	trust.Cause
}

// Check returns what is invalid.
func (u *Unfreeze) Check() error {
	if u.Schema != RecoverySchema {
		return fmt.Errorf("unfreeze: schema %d, want %d", u.Schema, RecoverySchema)
	}
	return errors.Join(trust.CheckTokenID(u.Token), u.Cause.Check())
}

// InRecovery returns the recovery that has not ended, or nil.
func (l *Logs) InRecovery() *Recovery {
	if r := l.NewestRecovery(); r != nil && r.Ended.IsZero() {
		return r
	}
	return nil
}

// FrozenBy returns the recovery that froze a limited token, or nil. A token without a time counts as older.
func (l *Logs) FrozenBy(tid jwt.TokenID, issued time.Time) *Recovery {
	r := l.NewestRecovery()
	if !r.freezes(issued) || l.unfrozen(tid) != nil {
		return nil
	}
	return r
}

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

// UsesOf returns the total uses of a limited token; signed is the token's own limit.
func (l *Logs) UsesOf(tid jwt.TokenID, signed int) int {
	if u := l.unfrozen(tid); u != nil {
		return min(signed, u.Uses)
	}
	return signed
}
