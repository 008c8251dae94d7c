package provisioner

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/trust"
)

// Recovered says that a node came back in a recovery with a certificate that was not on record.
type Recovered struct {
	Epoch uint64    `json:"epoch"` // of the [orders.Recovery]
	Key   string    `json:"key"`   // [ca.KeyHash] of that certificate
	After time.Time `json:"after"` // start of the newest certificate on record
}

var errOffRecord = errors.New("the certificate is not on record")

// AdmitReturning returns nil if the store is in recovery and the node may renew with a certificate that is not on
// record. If two keys come back, the name is revoked, since one of them is stolen or has lost the name.
func (g *Gate) AdmitReturning(ctx context.Context, id wire.Identity, leaf *x509.Certificate) error {
	r, _, err := g.cfg.Store.Record(ctx, id)
	if err != nil {
		return g.refuseUnread(id, err)
	}
	_, err = g.checkReturning(ctx, id, r, leaf)
	return err
}

func (g *Gate) checkReturning(ctx context.Context, id wire.Identity, r *Record,
	leaf *x509.Certificate) (*Recovered, error) {
	node := string(id)
	is := g.logs.InRecovery()
	if is == nil {
		return nil, refuse(wire.CodeNotIssued, errOffRecord)
	}
	role, name, err := g.cfg.Authority.Verify(leaf, nil, g.now())
	if err == nil && (role != wire.RoleNode || name != node) {
		err = fmt.Errorf("it belongs to %s %.100q", role, name)
	}
	if err != nil {
		return nil, refuse(wire.CodeNotIssued, fmt.Errorf("%w: %w", errOffRecord, err))
	}
	key, err := ca.KeyHash(leaf.PublicKey)
	if err != nil {
		return nil, refuse(wire.CodeNotIssued, err)
	}
	for _, by := range []*trust.Revocation{g.revocations.Serial(ca.Serial(leaf)), g.revocations.Key(key),
		g.revocations.Lost(id, key)} {
		if by != nil {
			return nil, refuse(wire.CodeIdentityRevoked, by.Err())
		}
	}
	if err := g.admits(id, r); err != nil {
		return nil, err
	}
	back := &Recovered{Epoch: is.Epoch, Key: key, After: r.newestBegin()}
	if r != nil && r.Recovered != nil && r.Recovered.Epoch == is.Epoch {
		back.After = r.Recovered.After
	}
	if !leaf.NotBefore.After(back.After) {
		return nil, refuse(wire.CodeNotIssued,
			fmt.Errorf("%w: it begins at %s, not after the newest one on record, %s", errOffRecord,
				leaf.NotBefore.Format(time.RFC3339), back.After.Format(time.RFC3339)))
	}
	if r != nil && r.Recovered != nil && r.Recovered.Epoch == is.Epoch && !slices.Contains(r.Lineage, key) {
		return nil, g.contest(ctx, r, key)
	}
	return back, nil
}

func (r *Record) newestBegin() (newest time.Time) {
	if r == nil {
		return newest
	}
	if r.State == StateRetired {
		return r.UpdatedAt.Add(-ca.Backdate)
	}
	for _, i := range []*Issued{r.Current, r.Next} {
		if i != nil && i.NotBefore.After(newest) {
			newest = i.NotBefore
		}
	}
	return newest
}

func (g *Gate) contest(ctx context.Context, r *Record, key string) error {
	why := fmt.Sprintf("two keys, %.16s and %.16s, came back for this name in the recovery", r.Recovered.Key, key)
	g.contested.Store(r.Identity, true)
	entry := EntryAbout(trust.RevokedNode, r, g.now(), trust.Cause{By: "muster", Why: why})
	_, newest := g.revocations.About(r.Identity)
	err := g.revocations.Put(ctx, entry, newest) // the node's next request resolves a conflict
	if err == nil {
		err = g.Enforce(ctx, r.Identity)
	}
	if err != nil {
		return refuse(wire.CodeStoreUnavailable, err)
	}
	return refuse(wire.CodeIdentityRevoked, errors.New(why))
}

func (a *attempt) classifyReturning(ctx context.Context) error {
	leaf, err := x509.ParseCertificate(a.certificate)
	if err != nil {
		return refuse(wire.CodeBadRequest, fmt.Errorf("certificate: %w", err))
	}
	key, err := ca.KeyHash(leaf.PublicKey)
	if err != nil || key != a.vouching {
		return refuse(wire.CodeRenewSession, errors.New("the certificate is not for the key that signed the request"))
	}
	if a.returning, err = a.Gate.checkReturning(ctx, a.identity, a.record, leaf); err != nil {
		return err
	}
	a.former = trust.RevokedCertificate{
		Serial:   ca.Serial(leaf),
		NotAfter: leaf.NotAfter,
		Issuer:   a.cfg.Authority.IssuerOf(leaf.Raw),
	}
	a.reason = ReasonRenew
	if a.record != nil {
		if now := a.now(); a.record.validFor(a.csr.KeyHash, now) != nil &&
			slices.Contains(a.record.Lineage, a.csr.KeyHash) {
			a.reason = ReasonReplay
		}
	}
	if a.token, err = a.record.storedToken(); err != nil {
		return refuse(wire.CodeUnavailable, err)
	}
	return nil
}

func (n *Record) markRecovered(back *Recovered, former trust.RevokedCertificate) {
	n.Recovered = back
	n.addKey(back.Key)
	if !slices.ContainsFunc(n.Superseded, func(c trust.RevokedCertificate) bool { return c.Serial == former.Serial }) {
		n.Superseded = append(slices.Clone(n.Superseded), former)
	}
}

// RecoveryAlarm returns the cause of [events.AlarmRecovery], or nil.
func (g *Gate) RecoveryAlarm() error {
	r := g.logs.InRecovery()
	if r == nil {
		return nil
	}
	err := fmt.Errorf("the store has been in recovery since %s: nodes may renew with their certificates, other names "+
		"need an approval; once the fleet is back: muster recovery end", r.Began.Format(time.RFC3339))
	for name := range g.contested.Range {
		err = fmt.Errorf("%w; %v is revoked because two keys came back for it", err, name)
	}
	return err
}
