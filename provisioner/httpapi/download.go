package httpapi

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"

	"muster/provisioner"
)

// Forms of certificates and CRLs (RFC 5280 section 4.2.1.13, RFC 8555 section 9.1).
const (
	typePEM = "application/x-pem-file"
	typeCRL = "application/pkix-crl"
)

// errNoIssuer means that nobody with this key identifier signs CRLs here.
var errNoIssuer = &Problem{Detail: "no issuer of CRLs has this key identifier", Status: http.StatusNotFound, Remedy: "/v1/crl lists them all"}

// downloadRoutes serve files for programs that read no JSON: brokers, openssl,
// curl. Nothing in them is secret.
func downloadRoutes(s *Server) {
	// What write writes, it writes piece by piece: a CRL may have 64 MiB and anybody may ask
	// for it, so whoever takes an answer slowly must not cost us as much again.
	file := func(pattern, form string, read func(*http.Request) (write func(io.Writer) error, err error)) {
		s.raw(pattern, func(w http.ResponseWriter, r *http.Request) {
			write, err := read(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			w.Header().Set("Content-Type", form)
			_ = write(w) // the client has gone
		})
	}
	file("GET /v1/ca.pem", typePEM, func(*http.Request) (func(io.Writer) error, error) {
		return func(w io.Writer) error {
			_, err := io.WriteString(w, s.cfg.Provisioner.DescribeAuthority().Roots)
			return err
		}, nil
	})
	file("GET /v1/crl", typeJSON, func(*http.Request) (func(io.Writer) error, error) {
		crls, err := s.crls()
		return func(w io.Writer) error { return writeCRLs(w, crls) }, err
	})
	file("GET /v1/crl.pem", typePEM, func(*http.Request) (func(io.Writer) error, error) {
		crls, err := s.crls()
		return func(w io.Writer) error {
			for _, c := range crls {
				if err := pem.Encode(w, &pem.Block{Type: "X509 CRL", Bytes: c.DER}); err != nil {
					return err
				}
			}
			return nil
		}, err
	})
	file("GET /v1/crl.der", typeCRL, func(r *http.Request) (func(io.Writer) error, error) {
		v, err := parameters(r, "issuer")
		if err != nil {
			return nil, badRequest(err)
		}
		crls, err := s.crls()
		for _, c := range crls {
			if issuer := v.Get("issuer"); issuer == "" || issuer == c.Issuer {
				return func(w io.Writer) error {
					_, err := w.Write(c.DER)
					return err
				}, nil
			}
		}
		if err == nil {
			err = errNoIssuer
		}
		return nil, err
	})
}

// writeCRLs writes CRLs as JSON, as package json would.
func writeCRLs(w io.Writer, crls []*provisioner.CRL) error {
	const here = `"der":"AA=="`
	out, before := bufio.NewWriter(w), "[" // which keeps the first error
	for _, c := range crls {
		short := *c
		short.DER = []byte{0} // here, and nowhere else: in a text there are no quotes
		b, err := json.Marshal(&short)
		if err != nil {
			return err
		}
		head, tail, _ := bytes.Cut(b, []byte(here))
		_, _ = fmt.Fprintf(out, `%s%s"der":"`, before, head)
		text := base64.NewEncoder(base64.StdEncoding, out)
		_, _ = text.Write(c.DER)
		_ = text.Close()
		_, _ = fmt.Fprintf(out, `"%s`, tail)
		before = ","
	}
	_, _ = out.WriteString("]\n")
	return out.Flush()
}

// crls returns the newest CRL of each issuer that signs one, the present one's
// first. There is at least one, or an error.
func (s *Server) crls() ([]*provisioner.CRL, error) {
	if all := s.cfg.Provisioner.CRLs(); len(all) > 0 {
		return all, nil
	}
	return nil, errNoCRL
}
