package provisioner

import (
	"slices"

	"muster/provisioner/waiting"

	"muster/internal/wire"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// notePending lists the attempt, sets its retry time, and returns whether an event about it was sent lately. Concealed
// refusals are noted too, so that they take as long. Pending nodes ask for days: an event for each request would
// displace the rest.
func (a *attempt) notePending(r *Refusal) (said bool) {
	switch r.Code {
	case wire.CodeApprovalPending, wire.CodeDeferred, wire.CodeIdentityTaken:
	case wire.CodeIdentityRevoked:
		if r.PublicCode == "" {
			return false
		}
	default:
		return false
	}
	if a.csr == nil || a.token == nil {
		return false
	}
	w := &waiting.Key{
		Schema:     waiting.Schema,
		Identity:   a.identity,
		KeyHash:    a.csr.KeyHash,
		KeyType:    a.csr.KeyType,
		Code:       r.Code,
		Names:      namesOf(a),
		FactsBytes: len(a.request.Facts),
		Token:      a.token.ID,
		Signer:     a.token.Signer,
		SignerName: a.token.SignerName,
		Source:     events.Cut(a.source.Address, trust.MaxSourceBytes),
		Site:       a.siteOf(a.source),
		Sealed:     a.source.Sealed,
		Renewal:    a.renewal,
		Agent:      events.Scrub(events.Cut(a.request.Agent, waiting.MaxText)),
	}
	if d := a.decision; d != nil && r.Code != wire.CodeIdentityTaken {
		w.Policy = d.Digest
		for _, why := range d.Why()[:min(len(d.Why()), waiting.MaxReasons)] {
			w.Reasons = append(w.Reasons, events.Scrub(why))
		}
	}
	now := a.now()
	again, said := a.pending.Note(w, now, func() { w.Facts = a.shown.Shown(a.request.Facts) })
	if as := r.public(); r.After == 0 && (as == wire.CodeApprovalPending || as == wire.CodeIdentityTaken) {
		r.After = again
	}
	return said
}

// namesOf is for operators only; no certificate gets these names.
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

// HasEnrolled reports whether r, which may be nil, has admitted a pending key. Unless stale, the offer must be newer
// than the key's last request, which may be for the next certificate.
func (r *Record) HasEnrolled(w *waiting.Key, stale bool) bool {
	if s := r.state(); s != StateEnrolled && s != StateProvisioned || !slices.Contains(r.Lineage, w.KeyHash) {
		return false
	}
	return stale || slices.ContainsFunc([]*Issued{r.Next, r.Current}, func(i *Issued) bool {
		return i != nil && i.KeyHash == w.KeyHash && i.OfferedAt.After(w.LastAsked)
	})
}
