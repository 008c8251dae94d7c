package testbed

import (
	"bytes"
	"slices"
	"time"

	"muster/provisioner/trust"

	"muster/provisioner"
	"muster/provisioner/ca"
)

const maxAsked = 1000

// renewable reports whether two thirds of the life are over, so that the key may have another certificate.
func renewable(i *provisioner.Issued, at time.Time) bool {
	start := i.NotBefore.Add(ca.Backdate)
	return !at.Before(start.Add(i.NotAfter.Sub(start) * 2 / 3))
}

// notYetValid reports whether the certificate begins further in the future than clocks may differ. No broker accepts
// it, so its key may have another one.
func notYetValid(i *provisioner.Issued, at time.Time) bool { return i.NotBefore.Sub(at) > ca.Backdate }

func (c *checker) renewal(before, r *provisioner.Record, revision trust.Revision) {
	offered := r.Next != nil && (before == nil || before.Next == nil || before.Next.Serial != r.Next.Serial)
	if before == nil || !offered || r.Decision.Reason != provisioner.ReasonRenew {
		return
	}
	if r.State != provisioner.StateProvisioned || r.Current == nil ||
		!slices.Contains(before.Live(r.UpdatedAt), r.Current.Serial) {
		c.bad("%s revision %d: a renewal leaves no certificate that was live before it", r.Identity, revision)
	}
	if before.Token != r.Token || !bytes.Equal(before.Terms, r.Terms) {
		c.bad("%s revision %d: a renewal changes the token or its terms", r.Identity, revision)
	}
}

// superseded asks the gate about every certificate that was ever on record.
func (c *checker) superseded() {
	asked, now := 0, c.f.Clock.Now().UTC().Truncate(time.Second)
	for serial, id := range c.owner {
		if asked++; asked > maxAsked {
			return
		}
		admitted := c.f.daemon.Admits(c.f.Context(), id, serial) == nil
		if live := slices.Contains(c.last[id].Live(now), serial); admitted && !live {
			c.bad("certificate %s of %s is admitted, but not live on record", serial, id)
		}
	}
}
