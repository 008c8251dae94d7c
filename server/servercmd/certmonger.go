package servercmd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/certificates"
	"muster/server/trust"
)

// Exit statuses for certmonger. All but exitWait park a first request for seven days.
const (
	exitRejected    = 2 // standard output says why
	exitUnreachable = 3
	exitWait        = 5 // standard output has seconds, and a cookie for the next time
	exitUnsupported = 6
)

type certmongerVerb struct {
	files
	install bool
	out     io.Writer
}

const certmongerHelp = `An external helper, which certmonger runs with what it asks in the environment. The
running agent asks for the certificate over the node's connection. --install writes
/var/lib/certmonger/cas/muster, which packages bring. After a restart of certmonger:

  getcert request -c muster -f /etc/pki/web.crt -k /etc/pki/web.key \
    -D web1.example.net -C 'systemctl reload nginx'
  %[1]s --install
  %[1]s --install --ssl-dir /srv/agent/ssl

Exits with 0 and a certificate, 2 and a reason if it is refused, 5 to be asked again,
6 for an unknown operation.`

// AddCertmonger adds the verb certmonger, an external helper for certmonger.
func AddCertmonger(to Parent, all Verbs) {
	v := &certmongerVerb{out: os.Stdout}
	c := to.Command("certmonger", "Get certificates for certmonger, which runs this command.")
	c.HelpLong(fmt.Sprintf(certmongerHelp, called(to, "certmonger")))
	v.addPaths(c)
	cli.Flag(c, "install").BoolVar(&v.install)
	all[c.FullCommand()] = v.run
}

func (v *certmongerVerb) run(ctx context.Context) error {
	if v.install {
		return v.writeHelper()
	}
	switch operation := os.Getenv("CERTMONGER_OPERATION"); operation {
	case "", "SUBMIT", "POLL": // the same: to repeat a request is harmless
		return v.submit(ctx)
	case "IDENTIFY":
		return v.print("muster-server " + cli.Version() + "\n")
	case "FETCH-ROOTS":
		return v.roots()
	case "GET-NEW-REQUEST-REQUIREMENTS", "GET-RENEW-REQUEST-REQUIREMENTS":
		return v.print("CERTMONGER_CSR\n")
	case "GET-SUPPORTED-TEMPLATES", "GET-DEFAULT-TEMPLATE": // the policy judges profiles, and lists none
		return nil
	default:
		return cli.WithStatus(fmt.Errorf("operation %q is not supported", operation), exitUnsupported)
	}
}

func (v *certmongerVerb) print(text string) error {
	_, err := io.WriteString(v.out, text)
	return err
}

// end prints an answer to certmonger. Its log has why.
func (v *certmongerVerb) end(status int, text string, why error) error {
	return errors.Join(v.print(text+"\n"), cli.WithStatus(why, status))
}

func (v *certmongerVerb) submit(ctx context.Context) error {
	order, err := orderOf(os.Getenv)
	if err != nil {
		return v.end(exitRejected, err.Error(), err)
	}
	answer, err := v.ask(ctx, *order)
	switch {
	case err == nil:
		return v.print(answer.Certificate.Certificate)
	case answer.Final:
		return v.end(exitRejected, answer.Error, err)
	}
	// certmonger asks again soon, then less and less often, and at most four times later if the provisioner wants it.
	const cookie = "muster %d"
	tries := 0
	_, _ = fmt.Sscanf(os.Getenv("CERTMONGER_CA_COOKIE"), cookie, &tries) // another cookie counts as none
	tries = min(max(tries, 0)+1, 10)
	soon := min(1<<tries, 60)
	return v.end(exitWait, fmt.Sprintf("%d\n"+cookie, min(max(answer.RetryAfter, soon), 4*soon), tries), err)
}

// orderOf reads the certificate request. Other variables repeat what it says, some of them wrongly.
func orderOf(getenv func(string) string) (*certificates.Order, error) {
	block, _ := pem.Decode([]byte(getenv("CERTMONGER_CSR")))
	if block == nil {
		return nil, errors.New("CERTMONGER_CSR has no certificate request: certmonger runs this command")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("CERTMONGER_CSR: %w", err)
	}
	order := &certificates.Order{
		Verb:    certificates.Submit,
		Name:    fmt.Sprintf("certmonger-%.6x", sha256.Sum256(csr.RawSubjectPublicKeyInfo)),
		CSR:     block.Bytes,
		Profile: getenv("CERTMONGER_CA_PROFILE"),
	}
	if p := order.Profile; p != "" && !wire.ValidCertificateName(p) {
		return nil, fmt.Errorf("profile %.80q, want 1 to 64 letters, digits, dots, dashes and underscores", p)
	}
	former, _ := trust.ParseCertificates(getenv("CERTMONGER_CERTIFICATE")) // none at first
	for _, c := range former {
		for _, u := range c.URIs {
			if dir, name := path.Split(u.Path); strings.HasPrefix(dir, "/"+string(wire.RoleService)+"/") {
				order.Name = name
			}
		}
	}
	for _, e := range csr.Extensions {
		var usages []asn1.ObjectIdentifier
		if e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 37}) {
			_, _ = asn1.Unmarshal(e.Value, &usages) // a malformed list counts as none
		}
		for _, u := range usages {
			if usage := usageNames[u.String()]; usage != "" {
				order.Usages = append(order.Usages, usage)
			}
		}
	}
	return order, nil
}

// usageNames are those of RFC 5280 that a service certificate can have.
var usageNames = map[string]string{"1.3.6.1.5.5.7.3.1": "server", "1.3.6.1.5.5.7.3.2": "client"}

// roots prints three groups, as certmonger skips empty ones. It writes the first one into files. With the issuing
// certificate in it, these make a combined file with the whole chain.
func (v *certmongerVerb) roots() error {
	root, err := v.named("ca.pem", 0)
	issuing, failed := v.named("certificate.pem", 1)
	if err := errors.Join(err, failed); err != nil {
		return cli.WithStatus(err, exitUnreachable)
	}
	return v.print(issuing + root + "\n" + root + "\n" + issuing)
}

// named puts a name of its own before each certificate of a file of the agent's, without the first ones.
func (v *certmongerVerb) named(file string, skip int) (string, error) {
	list, err := inputfile.Parse(filepath.Join(v.cfg.SSLDir, file), inputfile.Configured,
		func(b []byte) ([]*x509.Certificate, error) { return trust.ParseCertificates(string(b)) })
	var b strings.Builder
	for _, c := range list[min(skip, len(list)):] {
		name := strings.Join(strings.Fields(c.Subject.CommonName), " ")
		fmt.Fprintf(&b, "%s %.4x\n%s", name, sha256.Sum256(c.Raw), trust.EncodeCertificates([]*x509.Certificate{c}))
	}
	return b.String(), err
}

// writeHelper writes the file in which certmonger finds an authority when it starts.
func (v *certmongerVerb) writeHelper() error {
	at := filepath.Join(cmp.Or(os.Getenv("CERTMONGER_CAS_DIR"), "/var/lib/certmonger/cas"), "muster")
	program, err := os.Executable()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("id=muster\nca_type=EXTERNAL\nca_is_default=0\nca_external_helper=%s certmonger --ssl-dir %s "+
		"--socket %s\n", program, v.cfg.SSLDir, v.cfg.Socket)
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		return fmt.Errorf("%w: is certmonger installed?", err)
	}
	return v.print(at + " written: restart certmonger, then use it with `getcert request -c muster`\n")
}
