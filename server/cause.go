package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"muster/internal/discover"
	"muster/internal/wire"
)

// A cause is an error together with what whoever reads the log can do about it.
type cause struct {
	what   error
	remedy string // one clause; empty if there is nothing to do
}

func (c *cause) Error() string { return c.what.Error() }
func (c *cause) Unwrap() error { return c.what }

// remedyOf returns the remedies in err, each once.
func remedyOf(err error) string {
	var list []string
	var walk func(error)
	walk = func(err error) {
		if c, ok := err.(*cause); ok && c.remedy != "" { //nolint:errorlint // the walk below unwraps
			for _, have := range list {
				if have == c.remedy {
					return
				}
			}
			list = append(list, c.remedy)
			return
		}
		switch e := err.(type) { //nolint:errorlint // as above
		case interface{ Unwrap() error }:
			walk(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, err := range e.Unwrap() {
				walk(err)
			}
		}
	}
	walk(err)
	return strings.Join(list, "; ")
}

// advised returns err with its remedy in the text, for an error that is
// reported once and without attributes.
func advised(err error) error {
	if remedy := remedyOf(err); remedy != "" {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}

// peer is what explain knows of the connection that failed.
type peer struct {
	broker string // URL
	normal bool   // with a certificate, not a token
	secure bool   // TLS was asked for
	sealed bool   // the token was presented sealed
	dates  string // what to do about a token that is out of date by this node's clock; empty: it is not
	file   string // the token's
}

// explain adds to an error of a connection what it means and what to do. What
// brokers and nats.go say is known only to those who know them; among it is
// that an authorization failure may be the token's age, which a broker does
// not tell.
func explain(err error, p peer) error {
	if err == nil {
		return nil
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var dns *net.DNSError
	text := err.Error()
	remedy := ""
	switch {
	case errors.As(err, new(*cause)):
		return err
	case errors.Is(err, context.Canceled):
		return err
	case isRefusal(err):
		remedy = refusedRemedy(p)
	case errors.Is(err, nats.ErrMaxConnectionsExceeded), strings.Contains(text, "connections exceeded"):
		remedy = "the broker is full; it frees places as nodes finish, or raise its connection limits"
	case strings.Contains(strings.ToLower(text), "maximum control line"):
		remedy = "the token is too long for the broker: raise its max_control_line to 16384, or sign a shorter token"
	case errors.Is(err, nats.ErrNkeysNotSupported):
		remedy = "the broker gives nothing to sign, without which a sealed token is refused: configure it as `muster broker config` says"
	case errors.Is(err, nats.ErrNoResponders):
		remedy = "no provisioner is connected to this broker: start one"
	case errors.Is(err, nats.ErrSecureConnWanted):
		remedy = "the broker speaks no TLS: give it a certificate, or sign the token with --insecure"
		if p.normal {
			remedy = "the broker speaks no TLS, and the fleet is reached in no other way: give it a certificate"
		}
	case errors.As(err, &unknown) && !p.secure && !p.normal:
		remedy = "the broker insists on TLS, which the token does not ask for: let the broker accept plain connections of nodes, or sign the token with --no-insecure"
	case errors.As(err, &unknown):
		remedy = "the broker's certificate is of another authority: something else answers there, or the authority has changed"
	case errors.As(err, &host):
		remedy = "the broker's certificate is for another name: use the name in it, or issue it one with this name"
	case errors.As(err, new(tls.RecordHeaderError)):
		remedy = remedyInClear
	case isAlert(err):
		remedy = "the broker refused the TLS handshake: see its log; an expired or disowned node certificate is the usual cause"
	case errors.As(err, &dns):
		remedy = "the broker's name does not resolve: check the name, and the resolver of this machine"
	case errors.Is(err, discover.ErrNotOffered):
		remedy = "the SRV record says that provisioning is not offered in this domain"
	case errors.Is(err, discover.ErrNoBrokers), errors.Is(err, discover.ErrLookup):
		remedy = "check the SRV records of the domain, and the resolver of this machine"
	case errors.Is(err, syscall.ECONNREFUSED):
		remedy = "nothing listens there: start the broker, or check address and port"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		remedy = "there is no route, or a firewall says so: check this machine's network, and firewalls between here and the broker"
	case errors.As(err, new(*net.OpError)) && errors.Is(err, os.ErrPermission):
		remedy = "a firewall or a route forbids the connection, or what confines the agent, as SELinux and systemd do: allow it"
	case errors.Is(err, nats.ErrNoInfoReceived), strings.Contains(text, "invalid websocket connection"):
		remedy = "something else answers there: check address and port, and whether this network wants somebody to log in first"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		remedy = "whoever answers there ends the connection at once: check address and port, the broker's log, as it may be full, and firewalls in between"
	case errors.Is(err, nats.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		remedy = "no answer in time: check the network and firewalls between here and the broker, and the broker's load"
	case errors.Is(err, syscall.EMFILE):
		remedy = "the agent may open no more files: raise its limit, as LimitNOFILE= of its unit or ulimit -n; it needs a few dozen"
	case errors.Is(err, syscall.ENFILE):
		remedy = "this machine has as many files open as it can: see what has opened them"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		remedy = "this machine has no address, or no port left, to connect from: check its network, and what has many connections open"
	case errors.Is(err, syscall.ENOSPC):
		remedy = "free some space"
	case errors.Is(err, syscall.EDQUOT):
		remedy = "free some space, or have the quota raised"
	case errors.Is(err, syscall.EPERM): // what root is told of a file that may not be changed
		remedy = "the agent needs to write there: check attributes (lsattr; chattr -ia takes away what protects a file), owner and mode"
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		remedy = "the agent needs to write there: check owner, mode and mount options"
	}
	return &cause{what: err, remedy: remedy}
}

// isRefusal reports whether a broker has not admitted this node, or does not any more.
func isRefusal(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || strings.Contains(strings.ToLower(err.Error()), "authorization violation")
}

// isAlert reports whether the peer ended a TLS connection with an alert.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // crypto/tls has no type for it
}

// refusedRemedy is about a broker that refuses what a node presents.
func refusedRemedy(p peer) string {
	switch {
	case p.normal:
		return "the broker does not admit this node's certificate: it may be revoked, superseded, or of after a backup that was restored; an operator sees which with `muster node explain` and this node's name"
	case p.dates != "":
		return p.dates
	case p.sealed:
		return "the provisioner does not hold the key to which the token is sealed, or the token is not signed by a signer that it trusts, or is not valid now: " +
			"see its log, or replace " + p.file + " by a token signed with the --seal of this fleet"
	}
	return "the token is not signed by a signer that the broker trusts, or is not valid now: see the broker's log, or replace " + p.file
}

// explainRefusal adds to a provisioner's refusal for the token's dates what this
// node's clock says of them.
func explainRefusal(err error, p peer) error {
	var refused refusal
	if !errors.As(err, &refused) || p.dates == "" {
		return err
	}
	switch refused.Code {
	case wire.CodeTokenExpired, wire.CodeTokenNotYetValid:
		return &cause{what: err, remedy: p.dates}
	}
	return err
}

// joined makes one error, of one line, of the failures at several brokers, in an
// order of its own: the brokers were tried in a random one.
func joined(failures []error) error {
	if len(failures) == 0 {
		return nil
	}
	slices.SortFunc(failures, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return &brokersError{oneLine(errors.Join(failures...)), failures}
}

// A brokersError is what became of several brokers, each by itself.
type brokersError struct {
	error
	each []error
}

func (e *brokersError) Unwrap() error { return e.error }

// oneLine makes one line of a list of errors, for the log.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	return &lineError{err}
}

type lineError struct{ err error }

func (e *lineError) Error() string { return strings.ReplaceAll(e.err.Error(), "\n", "; ") }
func (e *lineError) Unwrap() error { return e.err }

// sayOnce returns err with the text of a sentinel, which each of the errors in
// it has in front, only before the first of them.
func sayOnce(err, sentinel error) error {
	if err == nil {
		return nil
	}
	return &onceError{err: err, phrase: sentinel.Error() + ": "}
}

type onceError struct {
	err    error
	phrase string
}

func (e *onceError) Error() string {
	text := e.err.Error()
	before, after, found := strings.Cut(text, e.phrase)
	if !found {
		return text
	}
	return before + e.phrase + strings.ReplaceAll(after, e.phrase, "")
}

func (e *onceError) Unwrap() error { return e.err }
