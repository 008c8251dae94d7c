package certificates_test

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server/certificates"
	"muster/server/trust"
)

// says makes the provisioner refuse to issue; nil: it issues.
func (n *node) says(err error) {
	n.set(func() {
		n.answer = func(r *wire.CertificateRequest) error {
			if r.Verb == wire.CertificateReport {
				return nil
			}
			return err
		}
	})
}

// A refused certificate is stuck, with what to do, and reported. It is had once the provisioner allows it, for the key of
// the first request.
func TestRefusal(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.cfg.BackoffMax = 10 * time.Millisecond
	n.says(refusal(wire.CodeDenied, 0))
	n.specify("web", web)
	n.start()
	s := n.await("web", "stuck", func(s certificates.Status) bool { return s.Stuck && s.State == certificates.Failed })
	meaning := wire.MeaningOf(wire.CodeDenied)
	if s.Reason != "denied: "+meaning.Public || s.Advice != meaning.Remedy || s.Next.IsZero() {
		t.Errorf("status = %+v", s)
	}
	await(t, func() bool {
		r := n.requests(wire.CertificateReport)
		return len(r) == 1 && r[0].Report.Stuck && r[0].Report.Error == s.Reason && r[0].Report.State == certificates.Failed
	}, func() string { return "not reported once" })
	n.says(nil)
	n.await("web", "current", in(certificates.Current))
	asks := n.requests(wire.CertificateIssue)
	if first, last := asks[0], asks[len(asks)-1]; string(first.CSR) != string(last.CSR) {
		t.Error("another request after the refusal")
	}
	if s := n.status("web"); s.Reason != "" || s.Error == "" {
		t.Errorf("reason %q and last error %q", s.Reason, s.Error)
	}
}

// A certificate that waits for an operator is not stuck, and asks again when the provisioner says.
func TestApproval(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.says(refusal(wire.CodeApprovalPending, time.Hour))
	n.specify("web", web)
	m := n.start()
	s := n.await("web", "waiting", func(s certificates.Status) bool {
		return in(certificates.WaitingApproval)(s) && !s.Next.IsZero()
	})
	if wait := s.Next.Sub(n.clock()); wait < 55*time.Minute || wait > 80*time.Minute {
		t.Errorf("next try in %v, want an hour or a quarter more", wait)
	}
	m.stop()
	if n := len(n.requests(wire.CertificateIssue)); n != 1 {
		t.Errorf("asked %d times", n)
	}
	n.says(nil)
	n.pass(80 * time.Minute)
	n.start()
	n.await("web", "current", in(certificates.Current))
}

// Without an answer, and without a connection, the work goes on as soon as there is one.
func TestOffline(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.says(errors.New("no answer"))
	n.specify("web", web)
	m := n.start()
	n.await("web", "failed a few times, but not stuck", func(s certificates.Status) bool {
		return s.Error == "no answer" && s.State == certificates.Requested && len(n.requests(wire.CertificateIssue)) > 2 && !s.Stuck
	})
	m.Connect(nil)
	n.await("web", "offline", func(s certificates.Status) bool { return s.Reason == "no connection to the fleet" && !s.Stuck })
	n.says(nil)
	n.connect(m, identity)
	n.await("web", "current", in(certificates.Current))
	m.Connect(nil)
	n.pass(life * 76 / 100)
	n.await("web", "renewing", in(certificates.Renewing))
	n.pass(life * 20 / 100)
	n.await("web", "stuck near its end", stuck)
	n.pass(life)
	first := n.status("web").Serial
	n.connect(m, identity)
	n.await("web", "current again", func(s certificates.Status) bool {
		return s.State == certificates.Current && s.Serial != first
	})
	n.checkFiles()
}

// What does not fit is not saved, whatever signed it: the former files stay.
func TestUnusableAnswers(t *testing.T) {
	t.Parallel()
	other := newNode(t)
	other.specify("web", web)
	other.start()
	other.await("web", "current", in(certificates.Current))
	foreign := other.read("etc/tls/web.crt") + other.read("etc/tls/web-chain.pem")
	for name, spoil := range map[string]func(n *node, c *wire.ServiceCertificate){
		"another key": func(_ *node, c *wire.ServiceCertificate) {
			c.Certificate = foreign
		},
		"no certificate": func(_ *node, c *wire.ServiceCertificate) { c.Certificate = "" },
		"no authority":   func(_ *node, c *wire.ServiceCertificate) { c.CA = "" },
		"no chain": func(_ *node, c *wire.ServiceCertificate) {
			c.Certificate = c.Certificate[:strings.Index(c.Certificate, "-----END")+26]
		},
		"text":              func(_ *node, c *wire.ServiceCertificate) { c.Certificate += "lua_load /tmp/x\n" },
		"text in authority": func(_ *node, c *wire.ServiceCertificate) { c.CA = "lua_load /tmp/x\n" + c.CA },
		"another authority": func(_ *node, c *wire.ServiceCertificate) {
			made, err := ca.Generate("", time.Now())
			if err != nil {
				t.Error(err)
			}
			c.CA = trust.EncodeCertificates([]*x509.Certificate{made.Root})
		},
		"expired": func(n *node, _ *wire.ServiceCertificate) { n.ahead += 2 * life },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.complete(t)
			first := n.checkFiles()
			key, combined := n.read("etc/tls/web.key"), n.read("srv/web.pem")
			n.pass(life * 76 / 100)
			n.spoil = func(c *wire.ServiceCertificate) { spoil(n, c) }
			m := n.start()
			n.await("web", "refused", func(s certificates.Status) bool {
				return strings.Contains(s.Error, "cannot be used") && s.Serial == first
			})
			m.stop()
			if n.read("etc/tls/web.key") != key || n.read("srv/web.pem") != combined {
				t.Error("the files were changed")
			}
		})
	}
}
