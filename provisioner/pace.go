package provisioner

import (
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

const (
	// offerPace is how long an offer that is not confirmed is kept from being
	// replaced by one for another key. Chosen: a node that has lost its staged key
	// waits no longer than a reboot takes, and whoever has a node's key collects
	// no more than 30 certificates an hour.
	offerPace = 2 * time.Minute

	// maxSuperseded is how many superseded certificates may be unexpired before no
	// more are issued. Chosen: with a certificate of 30 days renewed every 20 there
	// are two, and 64 of them are 10 kB of a record.
	maxSuperseded = 64

	// busyForLong is when a node is to ask again that has to wait for a certificate
	// to expire or for an operator, who may come at any time.
	busyForLong = 5 * time.Minute
)

// keep takes over from the record before what must not be forgotten of its
// certificates: those that are neither current nor next any more, until they
// expire by a time that is believed: what has expired only by a clock that went
// ahead at once, and may be wrong, can still be presented when it is set right.
// Every write of a record that follows another goes through it, since the
// revisions that named a certificate are kept only for so long.
func (r *Record) keep(before *Record, believed time.Time) {
	if before == nil {
		return
	}
	var kept []trust.RevokedCertificate
	drops := func(serial string, notAfter time.Time) bool {
		same := func(i *Issued) bool { return i != nil && i.Serial == serial }
		return same(r.Current) || same(r.Next) || !believed.Before(notAfter) ||
			slices.ContainsFunc(kept, func(c trust.RevokedCertificate) bool { return c.Serial == serial })
	}
	for _, c := range before.Superseded {
		if !drops(c.Serial, c.NotAfter) {
			kept = append(kept, c)
		}
	}
	for _, i := range []*Issued{before.Current, before.Next} {
		if i != nil && !drops(i.Serial, i.NotAfter) {
			kept = append(kept, i.superseded())
		}
	}
	r.Superseded = kept
}

// superseded returns what is remembered of the certificate once it is neither
// current nor next. What does not parse keeps its serial and has no issuer: on
// no CRL, but nobody can present it either.
func (i *Issued) superseded() trust.RevokedCertificate {
	c, err := i.forCRL()
	if err != nil {
		return trust.RevokedCertificate{Serial: i.Serial, NotAfter: i.NotAfter}
	}
	return c
}

// forCRL returns what a CRL needs to know of the certificate.
func (i *Issued) forCRL() (trust.RevokedCertificate, error) {
	certificate, err := x509.ParseCertificate(i.DER)
	if err != nil {
		return trust.RevokedCertificate{}, err
	}
	return trust.RevokedCertificate{Serial: i.Serial, NotAfter: i.NotAfter, Issuer: hex.EncodeToString(certificate.AuthorityKeyId)}, nil
}

// tooEarly refuses an attempt for now, because of err; nil if that is nil.
func (a *proof) tooEarly(wait time.Duration, err error) error {
	if err == nil {
		return nil
	}
	r := refuse(string(a.identity), wire.CodeBusy, err)
	r.After = wait
	return r
}

// pace refuses an attempt whose certificate would be one too many for now. What
// a node asks for by its keys alone is paced; a new identity has its quotas, and
// a grant and a one-time token are the operator's word.
func (a *attempt) pace() error {
	c := claim{keyHash: a.csr.KeyHash, vouching: a.vouching, requested: a.now()}
	return a.tooEarly(a.record.tooSoon(a.reason, c, func(serial string) bool { return a.revocations.Serial(serial) != nil }))
}

// tooSoon returns why the claim that is admitted on the given ground has to wait
// for its certificate, and how long, or nil.
func (r *Record) tooSoon(reason Reason, c claim, revoked func(serial string) bool) (time.Duration, error) {
	if reason != ReasonRenew && reason != ReasonContinue && reason != ReasonContinuity {
		return 0, nil
	}
	now := c.requested
	// Who renews with the key of an offer holds it, which is as good as its
	// confirmation.
	if reason != ReasonRenew || r.Next == nil || r.Next.KeyHash != c.vouching {
		if wait, err := r.youngOffer(c.keyHash, now); err != nil {
			return wait, err
		}
	}
	if len(r.Live(now)) == 0 {
		return 0, nil // once for each life of a certificate: a node is not kept out for what it was
	}
	count, wait := 0, busyForLong
	for _, s := range r.Superseded {
		// What the log names needs no record: a machine does not wait for the
		// certificates of one whose name was retired.
		if now.Before(s.NotAfter) && !revoked(s.Serial) {
			count, wait = count+1, min(wait, s.NotAfter.Sub(now))
		}
	}
	if count >= maxSuperseded {
		return wait, fmt.Errorf("%d superseded certificates have not expired, limit %d", count, maxSuperseded)
	}
	return 0, nil
}

// youngOffer returns why what is on offer must not give way to something for the key
// yet, and for how long, or nil. What was offered again since, with another
// configuration, is as old as its certificate: who repeats a request with other facts
// would keep the machine from its next certificate for ever. But the confirmed
// certificate, offered again, is as young as the record.
func (r *Record) youngOffer(keyHash string, now time.Time) (time.Duration, error) {
	n := r.Next
	if !n.live(now) || n.KeyHash == keyHash {
		return 0, nil
	}
	offered := n.OfferedAt
	if r.Current != nil && r.Current.Serial == n.Serial {
		offered = r.UpdatedAt
	}
	// Clocks of provisioners differ: an offer from the near future is as young.
	if age := now.Sub(offered).Abs(); age < offerPace {
		return offerPace - age, fmt.Errorf("certificate %s for another key was offered %v ago and is not confirmed, want %v", n.Serial, age, offerPace)
	}
	return 0, nil
}
