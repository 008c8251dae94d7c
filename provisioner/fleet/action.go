package fleet

import (
	"strings"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// An Action is a step for an operator: a command with arguments or, without one, what Text says.
type Action struct {
	Verb     string        `json:"verb,omitempty"` // such as "node approve"
	Identity wire.Identity `json:"identity,omitempty"`
	Key      string        `json:"key_hash,omitempty"`
	Token    jwt.TokenID   `json:"token_id,omitempty"`
	Site     jwt.Site      `json:"site,omitempty"`
	Name     string        `json:"name,omitempty"` // of a service certificate
	Text     string        `json:"text"`           // purpose of the command; without a verb: the step itself
}

// Command is the command line, empty without a verb.
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
	if a.Name != "" {
		words = append(words, a.Name)
	}
	if a.Token != "" {
		words = append(words, string(a.Token))
	}
	if a.Site != "" {
		words = append(words, "--site", string(a.Site))
	}
	if a.Key != "" {
		words = append(words, "--fingerprint", a.Key)
	}
	return strings.Join(words, " ")
}

// Remedies returns the actions after a refusal or alarm with a code. id and token may be empty.
func Remedies(code wire.Code, id wire.Identity, token jwt.TokenID) []Action {
	queue := func(text string) []Action { return []Action{{Verb: "node pending", Identity: id, Text: text}} }
	switch code {
	case wire.CodeApprovalPending:
		return queue("compare the waiting key with the machine's log, then approve or reject it")
	case wire.CodeIdentityTaken:
		return queue("compare the key that asks for the name; grant it the name only if the machine was reinstalled")
	case wire.CodeRejected:
		return []Action{{Text: "`muster node pending --rejected` lists rejected keys: approve or forget the key " +
			"if it was rejected by mistake"}}
	case wire.CodeDeferred:
		return []Action{{Text: "wait: policy or helper defers the node, and decides again at each request"}}
	case wire.CodeDenied:
		return []Action{{Text: "change the policy, the facts or the node's name; the refusal has the policy's reasons"}}
	case wire.CodeIdentityCloned:
		return cloneRemedies()
	case wire.CodePaused:
		return []Action{{Verb: "resume", Text: "end the pause; refused nodes retry by themselves"}}
	case wire.CodeTokenUsedUp:
		show := Action{Verb: "token show", Token: token, Text: "list the nodes that used the token"}
		if token == "" {
			show = Action{Verb: "token list", Text: "find the token, and then the nodes that used it"}
		}
		return []Action{show, {Text: "sign a token with more --uses"}}
	}
	return []Action{{Text: events.AlarmRemedy(code)}}
}
