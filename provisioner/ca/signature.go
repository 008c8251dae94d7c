package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"math/big"
)

// errSigned means that a key did not sign what it was given. A certificate with
// such a signature must never leave: its node would be offered it again and
// again, and a signature that was made with a damaged copy of the key tells the
// key, bit by bit (Boneh, DeMillo and Lipton).
var errSigned = errors.New("the key's signature does not verify")

// A p256Signer signs with a P-256 key, and verifies each of its signatures
// before anybody gets to see it.
//
// To verify one takes twice as long as to make it, for want of the private key:
// two points are multiplied, and only one of them is always the same. Whoever
// has the key needs one multiplication, of the base point: a signature (r, s) of
// e is one by d exactly if the point ((e + r·d) / s)·G has r as its x
// coordinate (FIPS 186-5, section 6.4.2, with the public key written d·G). So
// that is looked at first, with a copy of the key that shares no memory with the
// one that signs; what does not pass is verified again with the public key, which has the
// last word.
type p256Signer struct {
	key crypto.Signer
	pub *ecdsa.PublicKey
	d   *big.Int // copy of the private key of pub; nil if key does not give it away
}

// newP256Signer returns a signer with key, whose public key is pub.
func newP256Signer(key crypto.Signer, pub *ecdsa.PublicKey) *p256Signer {
	s := &p256Signer{key: key, pub: pub}
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return s
	}
	d, err := k.Bytes()
	if err != nil {
		return s
	}
	want, err := pub.Bytes()
	if err != nil {
		return s
	}
	if again, err := ecdh.P256().NewPrivateKey(d); err == nil && bytes.Equal(again.PublicKey().Bytes(), want) {
		s.d = new(big.Int).SetBytes(d)
	}
	return s
}

// sign returns a signature over the SHA-256 of message. With a key in memory its
// secret number is made of the key and the digest (RFC 6979, which is what no random
// source means to crypto/ecdsa), in place of that and random bits: a fifth less to do.
// What that gives up is nothing here. Random bits keep those who can disturb the computer
// from learning the key of two signatures of one message; no two certificates have one
// serial number, and no faulty signature leaves.
func (s *p256Signer) sign(message []byte) ([]byte, error) {
	digest := sha256.Sum256(message)
	random := rand.Reader
	if s.d != nil {
		random = nil
	}
	signature, err := s.key.Sign(random, digest[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	if !s.made(digest, signature) && !ecdsa.VerifyASN1(s.pub, digest[:], signature) {
		return nil, errSigned
	}
	return signature, nil
}

// made reports whether signature is one of digest, as can be told with the
// private key. It may err on the side of no.
//
// math/big takes a time that depends on its operands, so the private key and
// the signature's secret number, which is what is multiplied with G in the end, only
// ever meet numbers that are random and used once: both sides of the division
// are multiplied with blind first. Multiplying the point takes the same time always.
func (s *p256Signer) made(digest [sha256.Size]byte, signature []byte) bool {
	if s.d == nil {
		return false
	}
	n := elliptic.P256().Params().N
	sigR, sigS, ok := parseSignature(signature)
	inRange := func(x *big.Int) bool { return x.Sign() > 0 && x.Cmp(n) < 0 }
	if !ok || !inRange(sigR) || !inRange(sigS) {
		return false
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand, Go 1.24)
	blind := new(big.Int).SetBytes(random[:])
	var quotient big.Int // room for what nobody wants, in place of some for each product
	times := func(a, b *big.Int) *big.Int {
		p := new(big.Int).Mul(a, b)
		quotient.QuoRem(p, n, p)
		return p
	}

	divisor := new(big.Int).ModInverse(times(sigS, blind), n)
	if divisor == nil {
		return false // blind is a multiple of n
	}
	// (e·blind + (r·blind)·d) / (s·blind)
	dividend := times(times(sigR, blind), s.d)
	dividend.Add(dividend, times(new(big.Int).SetBytes(digest[:]), blind))
	scalar := times(dividend, divisor)
	point, err := ecdh.P256().NewPrivateKey(scalar.FillBytes(random[:]))
	if err != nil {
		return false // 0
	}
	x := new(big.Int).SetBytes(point.PublicKey().Bytes()[1:33]) // after the 4 of an uncompressed point
	return x.Mod(x, n).Cmp(sigR) == 0
}

// parseSignature reads an Ecdsa-Sig-Value (RFC 3279 section 2.2.3). There is one
// way to write it, and what is written in another is none.
func parseSignature(b []byte) (r, s *big.Int, ok bool) {
	_, both, _, ok1 := readDER(b, tagSequence)
	_, first, rest, ok2 := readDER(both, tagInteger)
	_, second, _, ok3 := readDER(rest, tagInteger)
	if !ok1 || !ok2 || !ok3 {
		return nil, nil, false
	}
	r, s = new(big.Int).SetBytes(first), new(big.Int).SetBytes(second)
	return r, s, bytes.Equal(b, der(tagSequence, derInteger(r), derInteger(s)))
}
