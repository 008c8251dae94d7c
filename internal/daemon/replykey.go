package daemon

import (
	"crypto"
	"crypto/ed25519"
	"crypto/tls"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// A stolen reply key is of use until its certificate ends: it is on no record, so it cannot be revoked.
const replyKeyLife = 7 * 24 * time.Hour

// A replyKey signs replies to nodes, so that authorities sign only certificates and CRLs. Each process has its own.
type replyKey struct {
	own   *ownCertificate
	roots int // at the end of the certificates

	mu      sync.Mutex
	current *tls.Certificate // guarded by mu; nil before the first reply
}

func (c *Config) newReplyKey(authority *ca.Authority, opts Options) *replyKey {
	r := ca.Request{
		Role: wire.RoleProvisioner,
		Name: c.Name,
		TTL:  min(replyKeyLife, time.Duration(c.Certificates.MaxLifetime)),
	}
	key := func() (crypto.Signer, error) { // two thirds of the CPU of P-256
		_, key, err := ed25519.GenerateKey(nil)
		return key, err
	}
	return &replyKey{
		own:   newOwnCertificate("reply", r, key, authority, opts),
		roots: strings.Count(authority.RootsPEM(), "-----BEGIN "),
	}
}

// sign signs a reply to a node's request. The error wraps [ca.ErrAuthority] if the authority cannot certify a key.
func (k *replyKey) sign(r *wire.Reply, identity string, request []byte) error {
	c, err := k.certificate()
	if err != nil {
		return err
	}
	r.Provisioner = c.Certificate
	if r.Refusal == nil { // the node has the roots, by this reply or an earlier one
		r.Provisioner = r.Provisioner[:len(r.Provisioner)-k.roots]
	}
	r.Signature, err = wire.Sign(c.PrivateKey.(crypto.Signer), wire.ReplyDigest(r, identity, request))
	return err
}

// certificate returns the one in use, or a new one if that is due. If the authority cannot issue now, the one in use
// serves until its end.
func (k *replyKey) certificate() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.own.due() {
		c, err := k.own.issue()
		switch {
		case err == nil:
			k.current = &c
		case !k.own.now().Before(k.own.until):
			return nil, err
		}
	}
	return k.current, nil
}
