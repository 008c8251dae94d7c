package provisioner

import (
	"slices"

	"muster/provisioner/waiting"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// wait notes that the attempt was told to wait, if its code says so, and sets
// when it is to ask again if it waits for an operator. A name that is taken is
// told as an approval that is pending, and must take as long; so must a revoked
// one that is told so (see asUnseen), for which nobody is listed: no answer about a
// key lets it have that.
//
// It reports whether that was an event lately and is not to be one again: one who
// waits asks every few seconds, for days, and events of that would push all others
// out. So does a machine that was installed anew, or one whose name is a mistake,
// for a name that is another's.
func (a *attempt) wait(r *Refusal) (said bool) {
	switch r.Code {
	case wire.CodeApprovalPending, wire.CodeDeferred, wire.CodeIdentityTaken:
	case wire.CodeIdentityRevoked:
		if r.As == "" {
			return false
		}
	default:
		return false
	}
	if a.csr == nil || a.token == nil {
		return false
	}
	w := &waiting.Key{
		Schema: waiting.Schema, Identity: a.identity, KeyHash: a.csr.KeyHash, KeyType: a.csr.KeyType, Code: r.Code,
		Names: namesOf(a), FactsBytes: len(a.request.Facts),
		Token: a.token.ID, Signer: a.token.Signer, SignerName: a.token.SignerName,
		Source: events.Cut(a.source.Address, trust.MaxSourceBytes), Site: a.siteOf(a.source), Sealed: a.source.Sealed, Renewal: a.renewal,
		Agent: events.Scrub(events.Cut(a.request.Agent, waiting.MaxText)),
	}
	if d := a.decision; d != nil && r.Code != wire.CodeIdentityTaken {
		w.Policy = d.Digest
		for _, why := range d.Why()[:min(len(d.Why()), waiting.MaxReasons)] {
			w.Reasons = append(w.Reasons, events.Scrub(why))
		}
	}
	now := a.now()
	again, said := a.waiters.Note(w, now, func() { w.Facts = a.shown.Shown(a.request.Facts) })
	if as := r.as(); r.After == 0 && (as == wire.CodeApprovalPending || as == wire.CodeIdentityTaken) {
		r.After = again
	}
	return said
}

// namesOf returns the names that the certificate request asks for and no
// certificate would have, bounded.
func namesOf(a *attempt) []string {
	var names []string
	for _, list := range [][]string{a.csr.DNSNames, a.csr.IPAddresses, a.csr.URIs, a.csr.Emails} {
		for _, name := range list[:min(len(list), waiting.MaxNames)] {
			if name != string(a.identity) {
				names = append(names, events.Scrub(events.Cut(name, waiting.MaxText)))
			}
		}
	}
	return names
}

// HasIn reports whether a key that waits has got in by the record, which may be nil.
// Whoever has been silent for long does not wait; who asked of late may wait for what comes
// after the certificate that it has.
func (r *Record) HasIn(w *waiting.Key, stale bool) bool {
	if s := r.state(); s != StateEnrolled && s != StateProvisioned || !slices.Contains(r.Lineage, w.KeyHash) {
		return false
	}
	return stale || slices.ContainsFunc([]*Issued{r.Next, r.Current}, func(i *Issued) bool {
		return i != nil && i.KeyHash == w.KeyHash && i.OfferedAt.After(w.LastAsked)
	})
}
