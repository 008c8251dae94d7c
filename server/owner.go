package server

import (
	"cmp"
	"crypto/x509"
	"fmt"

	"muster/internal/wire"
)

// foreign reports, as an error with its remedy, that the live directory holds
// a key that works and a certificate that names somebody other than id. Whether
// that certificate is still valid, or even for the key, does not matter: the
// key may be the only proof of a name, so nothing that is in doubt is replaced.
//
// A directory that came along with a copied disk looks the same. Only a person
// can tell the two apart, so a person removes it.
func (s *Server) foreign(id wire.Identity) error {
	leaf := s.certified()
	if leaf == nil {
		return nil // nothing that anybody could use, or a key without a name: keyInForce takes it
	}
	owner := ownerOf(leaf, id)
	if owner == "" {
		return nil
	}
	renamed := ""
	if CheckIdentity(owner) == nil {
		renamed = fmt.Sprintf("if this machine is called otherwise since, set identity = %s in server.conf; else ", owner)
	}
	return &cause{
		what: fmt.Errorf("%s belongs to %s, and this node is %s", s.at.live, owner, id),
		remedy: fmt.Sprintf("%sgive this node a directory and a configuration of its own (--ssl-dir, --config); or remove %s, if it came with a copied disk or %s is given up",
			renamed, s.at.live, owner),
	}
}

// holds reports whether the live directory holds a key that works and a certificate that
// names id, valid or not.
func (s *Server) holds(id wire.Identity) bool {
	leaf := s.certified()
	return leaf != nil && ownerOf(leaf, id) == ""
}

// certified returns the certificate in the live directory, valid or not, or nil if there
// is none or no key that works beside it.
func (s *Server) certified() *x509.Certificate {
	if _, err := readKey(s.at.in(keyFile)); err != nil {
		return nil
	}
	b, err := readBounded(s.at.in(certificateFile), maxPEMBytes)
	if err != nil {
		return nil
	}
	chain, err := parseCertificates(string(b))
	if err != nil {
		return nil
	}
	return chain[0]
}

// ownerOf returns whom a certificate names, or nothing if that is id.
func ownerOf(leaf *x509.Certificate, id wire.Identity) string {
	trustDomain := ""
	if len(leaf.URIs) == 1 {
		trustDomain = leaf.URIs[0].Host
	}
	role, name, err := wire.RoleOf(leaf, trustDomain)
	switch {
	case err == nil && role == wire.RoleNode && name == string(id):
		return ""
	case err == nil && role == wire.RoleNode:
		return name
	case err == nil:
		return fmt.Sprintf("%s %s", role, name)
	case leaf.VerifyHostname(string(id)) == nil:
		return "" // of another authority's making, and for this node
	}
	name = leaf.Subject.CommonName
	if len(leaf.DNSNames) > 0 {
		name = leaf.DNSNames[0]
	}
	return fmt.Sprintf("%.200q", cmp.Or(name, leaf.Subject.String()))
}
