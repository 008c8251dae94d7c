package ca_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
)

// The certificate has the approved name, whatever the request says.
func Example() {
	g, err := ca.Generate("", time.Now())
	if err != nil {
		fmt.Println(err)
		return
	}
	authority, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: g.IssuingKey,
		TrustDomain: "fleet.example.net"})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The node's request.
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, _ := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "root.example.net"},
	}, key)

	csr, err := ca.ParseCSR(der)
	if err != nil {
		fmt.Println(err)
		return
	}
	certificate, err := authority.Issue(ca.Request{Role: wire.RoleNode, Name: "web1.example.net",
		PublicKey: csr.PublicKey})
	if err != nil {
		fmt.Println(err)
		return
	}
	leaf, _ := x509.ParseCertificate(certificate.DER)
	fmt.Println(csr.CommonName, "got", leaf.DNSNames, leaf.URIs)
	// Output: root.example.net got [web1.example.net] [spiffe://fleet.example.net/node/web1.example.net]
}
