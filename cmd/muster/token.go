package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

const aboutVerbs = `These verbs ask the provisioner that runs on this machine, or with --url one
elsewhere. A token is named by its id, 32 hex digits as 'muster token list' and the
provisioner's log print it, or by its file, also one that was signed elsewhere and
that nobody has used yet.`

// addToken adds "muster token" with its verbs.
func addToken(app *kingpin.Application, all verbs) {
	c := app.Command("token", "See who used provisioning tokens, and revoke them.").HelpLong(aboutVerbs)
	addTokenIssue(c, all)
	addTokenList(c, all)
	addTokenShow(c, all)
	addTokenRevoke(c, all)
	addTokenRelease(c, all)
	addTokenThaw(c, all)
}

// tokenVerb is what the verbs about one token have in common.
type tokenVerb struct {
	operator
	token string
}

func (v *tokenVerb) arg(c *kingpin.CmdClause) {
	c.Arg("token", "Its id, or its file.").Required().StringVar(&v.token)
}

// id returns the id of the token that was named.
func (v *tokenVerb) id(ctx context.Context) (jwt.TokenID, error) {
	if len(v.token) == 32 && strings.Trim(v.token, "0123456789abcdef") == "" {
		return jwt.TokenID(v.token), nil
	}
	if _, err := os.Stat(v.token); err != nil {
		return "", fmt.Errorf("%q is neither the id of a token, 32 lower-case hex digits, nor a file with one", v.token)
	}
	text, err := readTokenFile(ctx, v.token)
	if err != nil {
		return "", err
	}
	var named httpapi.TokenID
	if err := v.ask(ctx, http.MethodPost, "/v1/tokens/identify", httpapi.TokenText{Token: wire.Secret(text)}, &named); err != nil {
		return "", fmt.Errorf("%s: %w", v.token, err)
	}
	return named.ID, nil
}

// usesText says how many of a token's uses are taken.
func usesText(t *httpapi.Token) string {
	if t.Signer == "" {
		return "-" // revoked before anybody used it: nothing else is known
	}
	if t.Uses == 0 {
		return "unlimited"
	}
	return fmt.Sprintf("%d of %d left", t.Remaining(), t.Uses)
}

// tokenState says in a word what a token is good for.
func tokenState(t *httpapi.Token, now time.Time) string {
	switch {
	case t.Revoked != nil:
		return "revoked"
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return "expired"
	case t.UsedUp():
		return "used up"
	case t.Frozen:
		return "frozen"
	default:
		return "good"
	}
}

// forText says what a token is limited to.
func forText(t *httpapi.Token) string {
	var parts []string
	for _, p := range t.Identities {
		parts = append(parts, string(p))
	}
	if t.Site != "" {
		parts = append(parts, "site "+string(t.Site))
	}
	if len(parts) == 0 && t.Signer != "" {
		return "any"
	}
	return strings.Join(parts, ", ")
}

// instant writes a time for people, "-" for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// counted writes a number with what it counts.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// short cuts a hash to what tells it apart for people.
func short(hash string) string { return hash[:min(16, len(hash))] }
