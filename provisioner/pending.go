package provisioner

import (
	"context"
	"fmt"
	"slices"

	"muster/provisioner/waiting"

	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// notePending lists the attempt, sets its retry time, and returns whether an event about it was sent lately. A node
// that would get "approval_pending" without being listed gets "busy": no operator could see it. Concealed refusals are
// noted too, so that they take as long.
func (a *attempt) notePending(ctx context.Context, r *Refusal) (_ *Refusal, said bool) {
	if !a.isPending(r) {
		return r, false
	}
	as := r.public()
	mustList := as == wire.CodeApprovalPending || as == wire.CodeIdentityTaken
	w := a.pendingKey(r)
	again, said, err := a.pending.Note(ctx, w, !mustList, func() { w.Facts = a.shown.Shown(a.request.Facts) })
	if mustList && r.After == 0 {
		r.After = again
	}
	if mustList && err != nil {
		busy := refuse(wire.CodeBusy, fmt.Errorf("%s, but not on the pending list: %w", r.Code, err))
		busy.After = again
		return busy, false
	}
	return r, said
}

func (a *attempt) isPending(r *Refusal) bool {
	switch r.Code {
	case wire.CodeApprovalPending, wire.CodeDeferred, wire.CodeIdentityTaken:
	case wire.CodeIdentityRevoked:
		if r.PublicCode == "" {
			return false
		}
	default:
		return false
	}
	return a.csr != nil && a.token != nil
}

func (a *attempt) pendingKey(r *Refusal) *waiting.Key {
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
		Protocol:   string(a.source.Protocol),
		Agent:      events.Scrub(events.Cut(a.request.Agent, waiting.MaxText)),
	}
	if a.source.Protocol == ProtocolPuppet && !a.renewal {
		w.Fingerprint = wire.Sum(a.request.CSR)
	}
	if d := a.decision; d != nil && r.Code != wire.CodeIdentityTaken {
		w.Policy = d.Digest
		why, said := d.Why(), a.unsigned
		if r.Code == wire.CodeDeferred && d.Verdict() != policies.VerdictDefer { // the configuration's helper defers
			said = r.Err
		}
		if said != nil { // first, since the list is bounded
			why = append([]string{events.Cut(events.ErrorText(said), policies.MaxReasonBytes)}, why...)
		}
		for _, text := range why[:min(len(why), waiting.MaxReasons)] {
			w.Reasons = append(w.Reasons, events.Scrub(text))
		}
	}
	return w
}

// Pending returns the pending keys as this process knows them.
func (p *Provisioner) Pending() *waiting.List { return p.pending }

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
	if s := StateOf(r); s != StateEnrolled && s != StateProvisioned || !slices.Contains(r.Lineage, w.KeyHash) {
		return false
	}
	return stale || slices.ContainsFunc([]*Issued{r.Next, r.Current}, func(i *Issued) bool {
		return i != nil && i.KeyHash == w.KeyHash && i.OfferedAt.After(w.LastAsked)
	})
}
