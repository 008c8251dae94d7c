package server

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"

	"muster/internal/wire"
)

// waitsFor says what a node that was refused with the code waits for, or ""
// if nothing but a change of node, token or policy would help it.
func waitsFor(code wire.Code) string {
	switch code {
	case wire.CodeApprovalPending:
		return "an operator's approval"
	case wire.CodeDeferred:
		return "the policy, which puts it off"
	}
	return ""
}

// shownKey is how much of a key's hash people are shown, in hex digits: what
// `muster node pending` shows, and enough for its --key.
const shownKey = 16

// waitRemedy is what to do about a node that waits, in the words of whoever can
// do it: the provisioner's remedy names no machine, since it is a table's.
func waitRemedy(r refusal, id string, key crypto.Signer) string {
	switch r.Code {
	case wire.CodeApprovalPending:
		return fmt.Sprintf("an operator lets it in with `muster node approve %s --key %.*s`; it asks again by itself", id, shownKey, keyHash(key))
	case wire.CodeDeferred:
		return fmt.Sprintf("nothing, it asks again by itself; `muster node pending --details --prefix %s` says why the policy puts it off", id)
	}
	return r.remedy()
}

// keyHash is the SHA-256 of a public key as operators see it, in hex; empty for
// a key that has no such form, which is none that a node makes.
func keyHash(key crypto.Signer) string {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(spki)
	return hex.EncodeToString(sum[:])
}
