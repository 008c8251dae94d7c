package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/provisioner/orders"
	"muster/provisioner/services"
)

// A CertificateReport is a service certificate with what an operator can do about it.
type CertificateReport struct {
	services.Listed
	Entry    *services.Certificate `json:"entry"`
	Findings []Finding             `json:"findings"`
}

// Certificate returns a service certificate of a node. The error is [services.ErrNone], or that of
// [services.Index.Fresh].
func (x *Inspector) Certificate(id wire.Identity, name string) (*CertificateReport, error) {
	if err := x.services.Fresh(); err != nil {
		return nil, err
	}
	listed, entry, ok := x.services.Get(id, name)
	if !ok {
		return nil, fmt.Errorf("%.80q of %s: %w", name, id, services.ErrNone)
	}
	e := &explainer{Explanation: &Explanation{Identity: id}}
	e.certificate(&listed, entry)
	return &CertificateReport{Listed: listed, Entry: entry, Findings: e.Findings}, nil
}

// certificates explains the service certificates of a node that need a person.
func (e *explainer) certificates(x *Inspector) {
	all, err := x.services.Page(services.Query{Node: wire.Pattern(e.Identity)})
	if err != nil {
		e.add("certificates_unknown", "Its service certificates are not known now: %s.", err)
		return
	}
	need := []services.State{services.StateWaiting, services.StateRefused, services.StateExpired}
	for _, l := range all.Certificates {
		if l.Stuck || slices.Contains(need, l.State) {
			_, entry, _ := x.services.Get(l.Node, l.Name)
			e.certificate(&l, entry)
		}
	}
}

// certificate explains one service certificate.
func (e *explainer) certificate(l *services.Listed, c *services.Certificate) {
	named := func(verb, text string) Action {
		return Action{Verb: "certificate " + verb, Identity: e.Identity, Name: l.Name, Text: text}
	}
	onMachine := func(why string) Action {
		return Action{Text: "run `muster-server certificate show " + l.Name + "` on the machine: " + why}
	}
	if w := c.Waiting; l.Request != "" {
		asks := fmt.Sprintf("The request for service certificate %s of %s, for %s (%s), made first at %s,", l.Name,
			e.Identity, cmp.Or(strings.Join(w.Names, ", "), "no name"), cmp.Or(strings.Join(w.Usages, ", "), "server"),
			stamp(w.Since))
		approve := named("approve", "let it have these names, if its service needs them")
		switch a := w.Answer; {
		case a != nil && a.Verdict == orders.VerdictApprove:
			e.add("certificate_approved", "%s was approved at %s by %s%s: the node gets it at its next request, until "+
				"%s.", asks, stamp(a.At), a.By, because(a.Why), stamp(a.ExpiresAt))
		case a != nil:
			e.add("certificate_rejected", "%s was rejected at %s by %s%s.", asks, stamp(a.At), a.By,
				because(a.Why)).Do = []Action{approve}
		case w.Code == wire.CodeApprovalPending:
			e.add("certificate_waiting", "%s waits for an approval%s.", asks, because(w.Cause)).Do =
				[]Action{approve, named("reject", "refuse these names")}
		default:
			remedy := wire.MeaningOf(w.Code).Remedy
			if w.Code == wire.CodeDenied {
				remedy = "correct the specification on the machine, or data.muster.certificate of the policy"
			}
			e.add("certificate_refused", "%s was refused, last at %s: %s.", asks, stamp(w.Asked),
				withCause(w.Code, w.Cause)).Do = []Action{{Text: remedy}}
		}
	}
	if s := c.State; s != nil && (s.Stuck || s.Error != "") {
		stuck := ""
		if s.Stuck {
			stuck = ", and that it is stuck"
		}
		e.add("certificate_stuck", "The node reports since %s that service certificate %s is %s%s: %s.", stamp(s.Since),
			l.Name, s.State, stuck, cmp.Or(s.Error, "it gives no reason")).Do = []Action{
			onMachine("it says what to correct"),
		}
	}
	switch {
	case l.State == services.StateExpired:
		e.add("certificate_ended", "Service certificate %s, %s, ended at %s without a renewal.", l.Name, l.Serial,
			stamp(l.Expires)).Do = []Action{onMachine("the agent is off, is refused, or cannot save a new one")}
	case l.State == services.StateRevoked:
		e.add("certificate_revoked", "All certificates of service certificate %s are revoked.", l.Name).Do = []Action{
			{Text: "if a service still needs one, run `muster-server certificate rekey " + l.Name + "` on the machine"},
		}
	case l.Serial != "":
		e.add("certificate_current", "Service certificate %s is %s, until %s.", l.Name, l.Serial, stamp(l.Expires)).Do =
			[]Action{named("revoke", "end it, if its key is lost or no service needs it")}
	}
}
