package server

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/inputfile"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/server/advice"
	"muster/server/link"
)

const maxTokenFile = wire.MaxTokenBytes + 1<<10 // with empty lines

// A token is the provisioning token on the node. It is not verified.
type token struct {
	*jwt.Unverified
	file string
	text wire.Secret
}

// readToken reads the first of paths that exists. The error wraps [ErrMissing] or [ErrUnusable], and contains no text
// of the token.
func readToken(paths []string) (*token, error) {
	for _, file := range paths {
		text, err := inputfile.ReadLine(file, inputfile.Configured, maxTokenFile, "a token")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("token: %w: %w", ErrUnusable, err)
		}
		peeked, err := jwt.Peek(text)
		if err != nil {
			return nil, fmt.Errorf("token %s: %w: %w", file, ErrUnusable, err)
		}
		return &token{peeked, file, wire.Secret(text)}, nil
	}
	return nil, fmt.Errorf("%s: %w", strings.Join(paths, " or "), ErrMissing)
}

// usable ignores the signature. Choria's nodes refuse the same tokens.
func (t *token) usable() error {
	if err := t.Check(); err != nil {
		return advice.Errorf("sign a correct token and replace the file", "token %s cannot be used: %w",
			t.file, link.OneLine(err))
	}
	return nil
}

func (t *token) expired(now time.Time) bool {
	end := t.Expiry()
	return !end.IsZero() && !now.Before(end)
}

// outOfDate returns the remedy if the token is expired or not yet valid by this node's clock, else "".
func (t *token) outOfDate(now time.Time) string {
	at := now.UTC().Format(time.RFC3339)
	switch {
	case t.expired(now):
		return fmt.Sprintf("the token expired at %s, and this clock says %s: "+
			"sign a new token and replace %s, or set the clock if it is wrong",
			t.Expiry().Format(time.RFC3339), at, t.file)
	case now.Before(t.NotBefore):
		return fmt.Sprintf("the token is valid from %s, and this clock says %s: wait until then, "+
			"set the clock if it is wrong, or sign a token that is valid earlier and replace %s",
			t.NotBefore.Format(time.RFC3339), at, t.file)
	}
	return ""
}

// sealed reports whether token and requests are encrypted to the provisioner's seal key. Only the token file decides:
// nothing on the network can make the node send them unsealed.
func (t *token) sealed() bool { return t.Limits.Seal != "" }

// auth returns how to present the token to a broker. A sealed connection has a new session and signs the broker's nonce
// to prove that it owns the session, so that a recorded sealed token is worthless.
func (t *token) auth() (link.Auth, error) {
	if !t.sealed() {
		options := []nats.Option{nats.Token(string(t.text))}
		if t.Username != "" {
			options = append(options, nats.UserInfo(t.Username, string(t.Password)))
		}
		return link.Auth{Options: options}, nil
	}
	key, err := seal.ParsePublicKey(t.Limits.Seal)
	var session *seal.Session
	if err == nil {
		session, err = seal.NewSession(key, t.text)
	}
	if err != nil {
		return link.Auth{}, advice.Errorf(
			"sign a token with the --seal of this fleet's provisioner and replace the file",
			"token %s cannot be used: extensions.muster.seal: %w", t.file, err)
	}
	options := []nats.Option{nats.Token(session.Token()), nats.Nkey(session.Name(), session.Prove)}
	return link.Auth{Options: options, Session: session}, nil
}
