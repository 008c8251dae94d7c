package fleet

import (
	"strings"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// An Action is what an operator can do about a finding: a verb of muster with its arguments, or what Text says.
type Action struct {
	Verb     string        `json:"verb,omitempty"` // such as "node approve"
	Identity wire.Identity `json:"identity,omitempty"`
	Key      string        `json:"key_hash,omitempty"`
	Token    jwt.TokenID   `json:"token_id,omitempty"`
	Text     string        `json:"text"` // what for, or without a verb what to do
}

// Command is the action as a command line, empty if it has no verb.
func (a Action) Command() string {
	if a.Verb == "" {
		return ""
	}
	words := []string{"muster", a.Verb}
	switch {
	case a.Verb == "node pending" && a.Identity != "":
		words = append(words, "--match", string(a.Identity))
	case a.Identity != "":
		words = append(words, string(a.Identity))
	}
	if a.Token != "" {
		words = append(words, string(a.Token))
	}
	if a.Key != "" {
		words = append(words, "--key", a.Key)
	}
	return strings.Join(words, " ")
}

// Remedies are what an operator can do about a code that a node was refused with, or that an alarm has. An action
// names the node and the token if they are known.
func Remedies(code wire.Code, id wire.Identity, token jwt.TokenID) []Action {
	queue := func(text string) []Action { return []Action{{Verb: "node pending", Identity: id, Text: text}} }
	switch code {
	case wire.CodeApprovalPending:
		return append(queue("approve or reject the key that waits"), Action{Verb: "allow add", Identity: id, Text: "let machines with such a name in"})
	case wire.CodeIdentityTaken:
		return queue("look at who wants the name; grant it to that key only if the machine was reinstalled")
	case wire.CodeRejected:
		return queue("approve or forget the key if it was rejected by mistake")
	case wire.CodeDeferred:
		return []Action{{Text: "wait: the policy puts the machine off, and decides again each time that it asks"}}
	case wire.CodeDenied:
		return []Action{{Text: "change the policy, the facts or the machine's name; its history has the policy's reasons"}}
	case wire.CodePaused:
		return []Action{{Verb: "resume", Text: "end the pause; machines come back by themselves"}}
	case wire.CodeTokenUsedUp:
		return []Action{{Verb: "token show", Token: token, Text: "see which machines used it"}, {Text: "sign a token with more --uses"}}
	}
	return []Action{{Text: events.AlarmRemedy(code)}}
}
