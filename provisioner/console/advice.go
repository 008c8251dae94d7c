package console

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
)

// command is a command about one node in a text that is written for terminals.
var command = regexp.MustCompile("`?muster node ([a-z]+) [a-z0-9.-]+( --key [0-9a-f]+)?`?")

// advice says what can be done about a node, with links to where it is done here
// instead of commands, about refusals first. Its texts are [fleet.Explanation]'s,
// which terminals show too.
func (p *nodePage) advice() [][]piece {
	var first, others [][]piece
	for _, text := range p.Explain.Do {
		code, _, _ := strings.Cut(text, ": ")
		i := slices.IndexFunc(p.Explain.Refusals, func(m fleet.Moment) bool { return string(m.Code) == code })
		if i < 0 {
			others = append(others, p.linked(text))
		} else if said := p.remedy(p.Explain.Refusals[i], text); said != nil {
			first = append(first, said)
		}
	}
	return append(first, others...)
}

// remedy says what can be done here about a refusal, nil if there is nothing to do
// any more: who no longer waits needs no verdict.
func (p *nodePage) remedy(m fleet.Moment, text string) []piece {
	waits := slices.ContainsFunc(p.Waiting, func(w *provisioner.Waiter) bool { return w.Code == m.Code })
	switch {
	case m.Code.Waits() && !waits, m.Code == wire.CodePaused && !p.paused:
		return nil
	case m.Code == wire.CodePaused:
		return []piece{{Text: "Resume enrollment", Link: "/"}, {Text: ": who and why paused it is on the overview. The machine comes back by itself"}}
	case m.Code == wire.CodeApprovalPending:
		return []piece{p.queue("Approve or reject it"), {Text: ", or "}, {Text: "put its name on the allow-list", Link: "/allow?" + url.Values{"pattern": {string(p.Identity)}}.Encode()}}
	case m.Code == wire.CodeDeferred:
		return []piece{{Text: "Wait: the policy puts it off, asks nobody, and decides again each time that the machine asks."}}
	case m.Code == wire.CodeIdentityTaken && waits:
		return []piece{p.queue("Look at who wants the name"), {Text: ": give it to another key only if this machine was reinstalled"}}
	case m.Code == wire.CodeRejected:
		return []piece{p.queue("Approve or forget its key"), {Text: " if it was rejected by mistake"}}
	case m.Code == wire.CodeDenied:
		return []piece{{Text: "Change the policy, the facts or the machine's name: below, in its past, are the policy's reasons"}}
	case m.Code == wire.CodeTokenUsedUp && m.Token != "":
		return append([]piece{{Text: "Look at who used the token", Link: "/tokens/" + string(m.Token)}, {Text: "; then "}}, pieces(strings.TrimPrefix(text, string(m.Code)+": "))...)
	}
	return p.linked(text)
}

// remedyOf says what an operator can do here about a code, whichever node it is
// about; nil if nothing is known of it.
func remedyOf(code string) []piece {
	queue := func(label string) piece { return piece{Text: label, Link: "/approvals"} }
	switch c := wire.Code(code); c {
	case wire.CodeApprovalPending:
		return []piece{queue("approve or reject who waits"), {Text: ", or put names on the "}, {Text: "allow-list", Link: "/allow"}}
	case wire.CodeRejected:
		return []piece{queue("approve or forget the keys"), {Text: " that were rejected by mistake"}}
	case wire.CodeIdentityTaken:
		return []piece{queue("look at who wants another's name"), {Text: ": give it to another key only if the machine was reinstalled"}}
	case wire.CodePaused:
		return []piece{{Text: "resume enrollment on the "}, {Text: "overview", Link: "/"}, {Text: "; machines come back by themselves"}}
	case wire.CodeDenied, wire.CodeDeferred:
		return []piece{{Text: "each says why; change the policy, or the machines' facts or names, if that is not what is wanted"}}
	default:
		return pieces(provisioner.AlarmRemedy(c))
	}
}

// queue is a link to the keys that wait or were rejected for the name.
func (p *nodePage) queue(label string) piece {
	return piece{Text: label, Link: "/approvals?" + url.Values{"q": {string(p.Identity)}}.Encode()}
}

// linked takes a text apart, and makes links of commands for which there is a
// button.
func (p *nodePage) linked(text string) []piece {
	at := command.FindStringSubmatchIndex(text)
	if at == nil {
		return pieces(strings.TrimSuffix(sentence(text), "."))
	}
	verb := text[at[2]:at[3]]
	var link piece
	a := nodeActionNamed(verb)
	switch {
	case at[4] >= 0 && (verb == "approve" || verb == "forget"): // of a rejected key
		link = p.queue(verb)
	case a != nil && slices.Contains(p.Actions, a):
		link = piece{Text: strings.ToLower(a.Label[:1]) + a.Label[1:]}
		if p.may {
			link.Link = p.Link(a)
		}
	default:
		link = piece{Text: strings.Trim(text[at[0]:at[1]], "`"), Code: true}
	}
	if at[0] == 0 && !link.Code {
		link.Text = strings.ToUpper(link.Text[:1]) + link.Text[1:]
	}
	before := text[:at[0]]
	if before != "" {
		before = strings.ToUpper(before[:1]) + before[1:]
		if !link.Code {
			link.Text += " it"
		}
	}
	return slices.Concat(pieces(before), []piece{link}, pieces(text[at[1]:]))
}

// standing is how a node stands. That a machine was refused is not told of one that
// waits: it was told so once, and asks again and again.
func (p *nodePage) standing() []string {
	refusals := p.Explain.Refusals
	if len(p.Waiting) == 0 || len(refusals) == 0 || !slices.ContainsFunc(p.Waiting, func(w *provisioner.Waiter) bool { return w.Code == refusals[0].Code }) {
		return p.Explain.Says
	}
	return slices.DeleteFunc(slices.Clone(p.Explain.Says), func(s string) bool { return strings.HasPrefix(s, "A machine under this name was refused") })
}

// chip says in a word how a name stands that has no record.
func (p *nodePage) chip(rejected []*provisioner.Answer) (word, tone string) {
	switch {
	case len(p.Waiting) > 0:
		return "waits", "warn"
	case slices.ContainsFunc(rejected, func(a *provisioner.Answer) bool { return a.Identity == p.Identity }):
		return "rejected", "bad"
	case p.Explain != nil && len(p.Explain.Refusals) > 0:
		return "refused", "bad"
	}
	return "no record", ""
}
