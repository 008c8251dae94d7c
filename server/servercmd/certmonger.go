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
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/server"
	"muster/server/certificates"
	"muster/server/trust"
)

// Exit statuses with which a helper of certmonger answers, besides that of success. All but exitWait park a first
// request for seven days.
const (
	exitRejected    = 2 // the text on standard output says why
	exitUnreachable = 3
	exitUnprepared  = 4
	exitWait        = 5 // standard output has seconds, and a cookie for the next time
	exitUnsupported = 6
)

const (
	cookiePrefix = "muster "
	longestWait  = 60 // seconds; up to four times as long if the provisioner asks for it
)

type certmongerVerb struct {
	files
	install bool
	out     io.Writer
}

const certmongerHelp = `certmonger runs this command to get its certificates from the fleet: the running
agent asks for them over the node's connection. The environment says what is
asked. While no agent runs, no broker is reached or an approval is pending,
certmonger asks again by itself.

  %[1]s --install
  %[1]s --install --ssl-dir /srv/agent/ssl

--install writes /var/lib/certmonger/cas/muster, which packages bring. After a restart
of certmonger:

  getcert request -c muster -f /etc/pki/web.crt -k /etc/pki/web.key \
    -D web1.example.net -C 'systemctl reload nginx'

Exits as certmonger expects it: 0 with a certificate, 2 if it is refused, 5 to be
asked again, 6 for an operation that it does not support.`

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

// end prints an answer, and what it means for the log of certmonger.
func (v *certmongerVerb) end(status int, text string, err error) error {
	return errors.Join(v.print(text), cli.WithStatus(err, status))
}

func (v *certmongerVerb) submit(ctx context.Context) error {
	order, err := orderOf(os.Getenv)
	if err != nil {
		return v.end(exitRejected, err.Error()+"\n", err)
	}
	answer, err := v.ask(ctx, *order)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return v.end(exitUnprepared, err.Error()+"\n", err)
	case err != nil:
		return v.wait(0, err)
	case answer.Final:
		return v.end(exitRejected, answer.Error+"\n", errors.New(answer.Error))
	case answer.Error != "":
		return v.wait(answer.RetryAfter, errors.New(answer.Error))
	}
	return v.print(answer.Certificate.Certificate)
}

// wait has certmonger ask again after the seconds, or soon and then less and less often.
func (v *certmongerVerb) wait(seconds int, why error) error {
	tries := 0
	if _, err := fmt.Sscanf(os.Getenv("CERTMONGER_CA_COOKIE"), cookiePrefix+"%d", &tries); err != nil {
		tries = 0
	}
	tries = min(max(tries, 0)+1, 10)
	own := min(1<<tries, longestWait)
	seconds = min(max(seconds, own), 4*own)
	return v.end(exitWait, fmt.Sprintf("%d\n%s%d\n", seconds, cookiePrefix, tries), why)
}

// orderOf returns what the environment asks for. Other variables repeat what the certificate request says, some of
// them wrongly.
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
		Name:    nameOf(getenv("CERTMONGER_CERTIFICATE")),
		CSR:     block.Bytes,
		Profile: getenv("CERTMONGER_CA_PROFILE"),
	}
	if order.Name == "" {
		order.Name = fmt.Sprintf("certmonger-%.6x", sha256.Sum256(csr.RawSubjectPublicKeyInfo))
	}
	if p := order.Profile; p != "" && !wire.ValidCertificateName(p) {
		return nil, fmt.Errorf("profile %.80q, want 1 to 64 letters, digits, dots, dashes and underscores", p)
	}
	for _, e := range csr.Extensions {
		var usages []asn1.ObjectIdentifier
		if e.Id.Equal(extendedKeyUsage) {
			_, _ = asn1.Unmarshal(e.Value, &usages) // without an effect, a malformed one is ignored like an unknown one
		}
		for _, u := range usages {
			if usage := usageNames[u.String()]; usage != "" {
				order.Usages = append(order.Usages, usage)
			}
		}
	}
	return order, nil
}

// Of RFC 5280. Other usages are nothing that a service certificate can have.
var (
	extendedKeyUsage = asn1.ObjectIdentifier{2, 5, 29, 37}
	usageNames       = map[string]string{"1.3.6.1.5.5.7.3.1": "server", "1.3.6.1.5.5.7.3.2": "client"}
)

// nameOf returns the name of a service certificate of this fleet's that is replaced, else "".
func nameOf(text string) string {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return ""
	}
	former, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	for _, u := range former.URIs {
		if dir, name := path.Split(u.Path); strings.HasPrefix(dir, "/"+string(wire.RoleService)+"/") &&
			wire.ValidCertificateName(name) {
			return name
		}
	}
	return ""
}

// roots prints the authorities in three groups, of which certmonger skips none that is empty. It writes the first one
// into files: with what issues in it, certificate, authority and key make a combined file with the whole chain.
func (v *certmongerVerb) roots() error {
	roots, issuing, err := server.Authorities(v.cfg)
	if err != nil {
		return cli.WithStatus(err, exitUnreachable)
	}
	return v.print(named(issuing) + named(roots) + "\n" + named(roots) + "\n" + named(issuing))
}

// named puts a name of its own before each certificate.
func named(list []*x509.Certificate) string {
	var b strings.Builder
	for i, c := range list {
		name := strings.Join(strings.Fields(c.Subject.CommonName), " ")
		fmt.Fprintf(&b, "%s %.4x\n%s", name, sha256.Sum256(c.Raw), trust.EncodeCertificates(list[i:i+1]))
	}
	return b.String()
}

// casDir is the directory in which certmonger finds authorities when it starts.
const casDir = "/var/lib/certmonger/cas"

func (v *certmongerVerb) writeHelper() error {
	at := filepath.Join(cmp.Or(os.Getenv("CERTMONGER_CAS_DIR"), casDir), "muster")
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
