package daemon

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"io"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// A stolen reply key is of use until its certificate ends: it is on no record, so it cannot be revoked.
const replyKeyLife = 7 * 24 * time.Hour

// A replyKey proves replies to nodes, so that authorities sign only certificates and CRLs. Each process has its own.
type replyKey struct {
	own   *ownCertificate
	roots int // at the end of the certificates
	// A confirmation's receipt is an HMAC by secret. It saves a signature, and the node a verification.
	secret [32]byte

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
	k := &replyKey{
		own:   newOwnCertificate("reply", r, key, authority, opts),
		roots: strings.Count(authority.RootsPEM(), "-----BEGIN "),
	}
	rand.Read(k.secret[:])
	return k
}

// sign adds the proof to a reply to a node's request: a signature, or a receipt if receiptSum is that of this process.
// The error wraps [ca.ErrAuthority] if the authority cannot certify a key.
func (k *replyKey) sign(r *wire.Reply, identity, receiptSum string, request []byte) error {
	switch {
	case r.Enrolled != nil:
		r.Enrolled.ReceiptSum = wire.Sum([]byte(k.receipt(identity, r.Enrolled.Serial)))
	case r.Applied != nil && receiptSum != "":
		if receipt := k.receipt(identity, r.Applied.Serial); wire.Sum([]byte(receipt)) == receiptSum {
			r.Applied.Receipt = receipt
			return nil
		}
	}
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

func (k *replyKey) receipt(identity, serial string) string {
	mac := hmac.New(sha256.New, k.secret[:])
	_, _ = io.WriteString(mac, identity+"\n"+serial)
	return hex.EncodeToString(mac.Sum(nil))
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
