package httpapi

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"reflect"

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
func (s *Server) downloadRoutes() {
	file := func(pattern, form string, read func(*http.Request) ([]byte, error)) {
		s.raw(pattern, exchange{asks: reflect.TypeFor[none](), media: []string{form}}, func(w http.ResponseWriter, r *http.Request) {
			b, err := read(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			w.Header().Set("Content-Type", form)
			_, _ = w.Write(b) // the client has gone
		})
	}
	file("GET /v1/ca.pem", typePEM, func(*http.Request) ([]byte, error) {
		return []byte(s.cfg.Provisioner.DescribeAuthority().Roots), nil
	})
	file("GET /v1/crl.pem", typePEM, func(*http.Request) (all []byte, err error) {
		crls, err := s.crls()
		for _, c := range crls {
			all = append(all, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: c.DER})...)
		}
		return all, err
	})
	file("GET /v1/crl.der", typeCRL, func(r *http.Request) ([]byte, error) {
		v := r.URL.Query()
		for name := range v {
			if name != "issuer" {
				return nil, badRequest(fmt.Errorf("%.40q: no such parameter, want issuer", name))
			}
		}
		crls, err := s.crls()
		for _, c := range crls {
			if issuer := v.Get("issuer"); issuer == "" || issuer == c.Issuer {
				return c.DER, nil
			}
		}
		if err == nil {
			err = errNoIssuer
		}
		return nil, err
	})
}

// crls returns the newest CRL of each issuer that signs one, the present one's
// first. There is at least one, or an error.
func (s *Server) crls() ([]*provisioner.CRL, error) {
	if all := s.cfg.Provisioner.CRLs(); len(all) > 0 {
		return all, nil
	}
	return nil, errNoCRL
}
