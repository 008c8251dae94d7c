package httpapi

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"slices"

	"muster/provisioner/trust"
)

// Media types of CRLs and certificates (RFC 5280 section 4.2.1.13, RFC 8555 section 9.1).
const (
	typePEM = "application/x-pem-file"
	typeCRL = "application/pkix-crl"
)

// errNoCRL occurs only shortly after the start.
var errNoCRL = errors.New("no certificate revocation list has been signed yet")

var errNoIssuer = &Problem{
	Detail: "no issuer of CRLs has this key identifier",
	Status: http.StatusNotFound,
	Remedy: "/v1/crl lists them all",
}

// downloadRoutes serve public files to programs that read no JSON: brokers, openssl, curl.
func downloadRoutes(s *Server) {
	s.handle("GET /v1/ca.pem", access{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", typePEM)
		_, _ = io.WriteString(w, s.cfg.Orders.Process.Authority().Roots) // the client has gone
	})
	getList(s, anyone, "/v1/crl", s.crls)
	crls := func(path, form string, write func(io.Writer, []*trust.CRL) error) {
		s.handle("GET "+path, access{}, func(w http.ResponseWriter, r *http.Request) {
			found, err := s.crls(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			w.Header().Set("Content-Type", form)
			_ = write(w, found) // the client has gone
		})
	}
	crls("/v1/crl.pem", typePEM, func(w io.Writer, crls []*trust.CRL) error {
		for _, c := range crls {
			if err := pem.Encode(w, &pem.Block{Type: "X509 CRL", Bytes: c.DER}); err != nil {
				return err
			}
		}
		return nil
	})
	crls("/v1/crl.der", typeCRL, func(w io.Writer, crls []*trust.CRL) error {
		_, err := w.Write(crls[0].DER)
		return err
	})
}

// crls returns the newest CRL of each issuer, or only that of the query's issuer: at least one, or an error.
func (s *Server) crls(r *http.Request) ([]*trust.CRL, error) {
	v, err := parameters(r, "issuer")
	if err != nil {
		return nil, badRequest(err)
	}
	all := s.cfg.Provisioner.AllCRLs()
	if len(all) == 0 {
		return nil, errNoCRL
	}
	if issuer := v.Get("issuer"); issuer != "" {
		all = slices.DeleteFunc(all, func(c *trust.CRL) bool { return c.Issuer != issuer })
	}
	if len(all) == 0 {
		return nil, errNoIssuer
	}
	return all, nil
}

// CRLs returns the CRLs of all issuers in PEM. Close it. Errors are those of [Client.Do].
func (c *Client) CRLs(ctx context.Context) (io.ReadCloser, error) {
	pem, _, err := c.stream(ctx, http.MethodGet, "/v1/crl.pem", "", nil)
	return pem, err
}
