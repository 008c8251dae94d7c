package wire

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SubjectCertificate is for requests about service certificates, over a node's mutual TLS connection.
const SubjectCertificate = "muster.v1.certificate"

// A CertificateVerb is what a [CertificateRequest] asks.
type CertificateVerb string

// The verbs.
const (
	CertificateIssue  CertificateVerb = "issue"  // also to renew
	CertificateRevoke CertificateVerb = "revoke" // the specification is gone
	CertificateReport CertificateVerb = "report" // the node's own state changed
)

// CertificateVerbs lists all verbs.
var CertificateVerbs = []CertificateVerb{CertificateIssue, CertificateRevoke, CertificateReport}

// CertificateSources are a file of the node, the policy's decision, and certmonger.
var CertificateSources = []string{"file", "pushed", "certmonger"}

// CertificateUsages are the uses of service certificates in TLS.
var CertificateUsages = []string{"server", "client"}

// CertificateStates are on a node, in this order.
var CertificateStates = []string{"wanted", "key made", "requested", "waiting for approval", "issued", "saved",
	"acted on", "current", "renewing", "failed"}

// MaxCertificateError bounds the error of a [CertificateState].
const MaxCertificateError = 512

// A CertificateRequest is about one service certificate of a node.
type CertificateRequest struct {
	ID       string          `json:"id"`       // repeated by the reply; see [NewID]
	Identity string          `json:"identity"` // of the connection
	Name     string          `json:"name"`     // of the specification; see [ValidCertificateName]
	Verb     CertificateVerb `json:"verb"`

	// CSR is PKCS #10 in DER, for verb issue. Its alternative names are the requested ones; its subject is ignored.
	CSR []byte `json:"csr,omitempty"`

	Profile string   `json:"profile,omitempty"`
	Network string   `json:"network,omitempty"`
	Usages  []string `json:"usages,omitempty"` // of [CertificateUsages]; empty: server
	Source  string   `json:"source"`           // one of [CertificateSources]

	// Replaces is the serial of the certificate that is renewed, or "".
	Replaces string `json:"replaces,omitempty"`

	Report *CertificateState `json:"report,omitempty"` // for verb report
}

// A CertificateState is the node's word about one of its service certificates.
type CertificateState struct {
	State string    `json:"state"` // one of [CertificateStates]
	Stuck bool      `json:"stuck,omitempty"`
	Error string    `json:"error,omitempty"` // one line of at most [MaxCertificateError] bytes; see [OneLine]
	Since time.Time `json:"since"`
}

// A ServiceCertificate answers a [CertificateRequest]. After verbs revoke and report it has only a name.
type ServiceCertificate struct {
	Name        string `json:"name"`
	Serial      string `json:"serial,omitempty"`      // lower-case hex
	Certificate string `json:"certificate,omitempty"` // PEM: leaf, issuing certificate
	CA          string `json:"ca,omitempty"`          // PEM: the roots, as in [Enrolled]
}

// ValidCertificateName is [ValidPolicyName] without names that begin like a flag.
func ValidCertificateName(name string) bool { return ValidPolicyName(name) && name[0] != '-' }

// DecodeCertificate returns the same errors as [DecodeRenew].
func DecodeCertificate(b []byte) (*CertificateRequest, error) {
	return decodePlain[CertificateRequest]("service certificate", b, MaxMessageBytes)
}

func (r *CertificateRequest) check() error {
	optional := func(name string) bool { return name == "" || ValidCertificateName(name) }
	switch {
	case !ValidCertificateName(r.Name) || !optional(r.Profile) || !optional(r.Network):
		return fmt.Errorf("%w: name %.80q, profile %.80q, network %.80q: %s", ErrMessage, r.Name, r.Profile, r.Network,
			wantCertificateName)
	case !slices.Contains(CertificateVerbs, r.Verb):
		return fmt.Errorf("%w: verb %.80q, want one of %q", ErrMessage, r.Verb, CertificateVerbs)
	case (r.Verb == CertificateIssue) != (len(r.CSR) > 0) || (r.Verb == CertificateReport) != (r.Report != nil):
		return fmt.Errorf("%w: certificate request of %d bytes and report %v do not fit verb %s", ErrMessage,
			len(r.CSR), r.Report != nil, r.Verb)
	case !slices.Contains(CertificateSources, r.Source):
		return fmt.Errorf("%w: source %.80q, want one of %q", ErrMessage, r.Source, CertificateSources)
	case len(r.Replaces) > 40 || strings.Trim(r.Replaces, "0123456789abcdef") != "":
		return fmt.Errorf("%w: replaces %.80q, want a serial in lower-case hex", ErrMessage, r.Replaces)
	}
	if err := checkUsages(r.Usages); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if s := r.Report; s != nil && (!slices.Contains(CertificateStates, s.State) || len(s.Error) > MaxCertificateError ||
		CheckLine(s.Error) != nil) {
		return fmt.Errorf("%w: state %.80q with an error of %d bytes, want one of %q and a line of at most %d bytes",
			ErrMessage, s.State, len(s.Error), CertificateStates, MaxCertificateError)
	}
	return cmp.Or(checkID("request id", r.ID),
		checkSize(ErrTooLarge, "certificate request", len(r.CSR), MaxCSRBytes))
}

func checkUsages(usages []string) error {
	for i, u := range usages {
		if !slices.Contains(CertificateUsages, u) || slices.Contains(usages[:i], u) {
			return fmt.Errorf("usage %.80q, want each of %q at most once", u, CertificateUsages)
		}
	}
	return nil
}
