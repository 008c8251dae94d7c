package console

import (
	"net/url"
	"slices"
	"strings"

	"muster/provisioner/waiting"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/provisioner/fleet"
)

// An advice is an action as shown, with a link if the console has a page for it.
type advice struct {
	Label   string // of the page or button, if any
	Link    string // empty if the operator may not follow it
	Command string // shown without a label
	Text    string
}

// pagesOf are the pages of actions that have no button on a node's page.
var pagesOf = map[string]struct{ label, path, name string }{
	"node pending": {"Pending", "/approvals", "q"},
	"node approve": {"Approve", "/approvals", "q"},
	"node forget":  {"Forget", "/approvals", "q"},
	"node reject":  {"Reject", "/approvals", "q"},
	"resume":       {"Resume enrollment", "/", ""},
}

// adviceOf returns an action as the console shows it.
func adviceOf(a fleet.Action) advice {
	shown := advice{Text: a.Text}
	if a.Verb == "" {
		shown.Text = strings.TrimSuffix(sentence(a.Text), ".")
		return shown
	}
	page, ok := pagesOf[a.Verb]
	switch {
	case a.Name != "":
		shown.Label, shown.Link = "Service certificate "+a.Name, certificateLink(a.Identity, a.Name)
	case a.Verb == "token show" && a.Token != "":
		shown.Label, shown.Link = "Token", "/tokens/"+string(a.Token)
	case ok:
		shown.Label, shown.Link = page.label, page.path
		if page.name != "" && a.Identity != "" {
			shown.Link += "?" + url.Values{page.name: {string(a.Identity)}}.Encode()
		}
	default:
		shown.Command = a.Command()
	}
	return shown
}

// remedies are the actions for a code, whatever the node.
func remedies(code string) (all []advice) {
	for _, a := range fleet.Remedies(wire.Code(code), "", "") {
		all = append(all, adviceOf(a))
	}
	return all
}

// advice uses the buttons of the node's page where it can.
func (p *nodePage) advice(a fleet.Action) advice {
	verb, about := strings.CutPrefix(a.Verb, "node ")
	button := named(nodeActions, verb)
	if !about || !slices.Contains(p.Actions, button) {
		return adviceOf(a)
	}
	shown := advice{Label: button.Label, Text: a.Text}
	if p.may {
		shown.Link = p.Link(button)
		if a.Key != "" {
			shown.Link += "&key=" + url.QueryEscape(a.Key)
		}
	}
	return shown
}

// read collects status and advice. It omits the refusal of a waiting key, and the advice to approve if no key waits.
func (p *nodePage) read() {
	for _, f := range p.Explain.Findings {
		code := wire.Code(f.Code)
		waits := slices.ContainsFunc(p.Waiting, func(w *waiting.Key) bool { return w.Code == code })
		if !waits {
			p.Says = append(p.Says, f.Text)
		}
		if code.Waits() && !waits || code == wire.CodePaused && !p.paused {
			continue
		}
		for _, a := range f.Do {
			if said := p.advice(a); !slices.Contains(p.Do, said) {
				p.Do = append(p.Do, said)
			}
		}
	}
}

// chip is the status of a name without a record, in a word.
func (p *nodePage) chip(rejected []*orders.Answer) (word, tone string) {
	switch {
	case len(p.Waiting) > 0:
		return "pending", "warn"
	case slices.ContainsFunc(rejected, func(a *orders.Answer) bool { return a.Identity == p.Identity }):
		return "rejected", "bad"
	case p.Explain != nil && len(p.Explain.Refusals) > 0:
		return "refused", "bad"
	}
	return "no record", ""
}
