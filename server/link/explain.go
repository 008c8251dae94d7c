package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"

	"muster/internal/discover"
	"muster/server/advice"
)

// A Peer is what [Explain] knows about the failed connection.
type Peer struct {
	Secure  bool   // TLS was requested
	Refused string // remedy if the broker does not admit the node
}

// Explain adds a remedy to a connection error, unless it has one.
func Explain(err error, p Peer) error {
	if err == nil || advice.Given(err) || errors.Is(err, context.Canceled) {
		return err
	}
	if isRefusal(err) {
		return advice.New(err, p.Refused)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && !p.Secure {
		return advice.New(err, "the broker requires TLS, but the token asks for plain connections: "+
			"let the broker accept plain connections of nodes, or sign the token with --no-insecure")
	}
	for _, c := range causes {
		if c.is(err) {
			return advice.New(err, c.remedy)
		}
	}
	return err
}

// The sockets of Windows have errors of their own, with numbers that no other system uses.
const (
	wsaNetUnreach  = syscall.Errno(10051)
	wsaConnReset   = syscall.Errno(10054)
	wsaConnRefused = syscall.Errno(10061)
	wsaHostUnreach = syscall.Errno(10065)
)

// The first match counts.
var causes = []struct {
	is     func(error) bool
	remedy string
}{
	{text("connections exceeded"),
		"the broker has reached its connection limit: wait until nodes have enrolled, or raise the limit"},
	{text("maximum control line"),
		"the token is too long for the broker: raise its max_control_line to 16384, or sign a shorter token"},
	{is(nats.ErrNkeysNotSupported), "the broker sends no nonce, which a sealed token needs: " +
		"configure it as `muster broker config` says"},
	{is(nats.ErrNoResponders), "no provisioner is connected to this broker: start a provisioner"},
	{is(nats.ErrSecureConnWanted),
		"the broker does not speak TLS: give it a certificate; for plain provisioning sign the token with --insecure"},
	{as[x509.UnknownAuthorityError],
		"another authority issued the broker's certificate: the peer is another system, or the authority changed"},
	{as[x509.HostnameError],
		"the broker's certificate is for another name: connect by a name in it, or issue a certificate with this name"},
	{as[tls.RecordHeaderError], remedyUnencrypted},
	{isAlert,
		"the broker refused the TLS handshake: see its log; an expired or disowned node certificate is the usual " +
			"cause"},
	{as[*net.DNSError], "the broker's name does not resolve: check the name, and the resolver of this machine"},
	{is(discover.ErrNoBrokers),
		"check the SRV records of the domain, and the resolver of this machine"},
	{is(syscall.ECONNREFUSED, wsaConnRefused),
		"no program listens at this address and port: start the broker, or correct them"},
	{is(syscall.EHOSTUNREACH, syscall.ENETUNREACH, wsaHostUnreach, wsaNetUnreach),
		"no route to the broker: check this machine's network, and firewalls between here and the broker"},
	{func(err error) bool {
		return is(nats.ErrNoInfoReceived)(err) || text("invalid websocket connection")(err)
	},
		"the peer is not a broker: check address and port, and whether this network requires a login first"},
	{is(syscall.ECONNRESET, wsaConnReset, syscall.EPIPE, io.EOF), "the peer closes the connection at once: " +
		"check address and port, firewalls in between, and the broker's log, since it may be full"},
	{is(nats.ErrTimeout, os.ErrDeadlineExceeded, context.DeadlineExceeded), "no answer in time: " +
		"check the network and firewalls between here and the broker, and the broker's load"},
	{is(syscall.ENOSPC, syscall.EDQUOT), "free some space"},
	{is(syscall.EBUSY), "mount the directory above it, or choose another --config or --ssl-dir"},
	{is(syscall.EROFS, syscall.EPERM, os.ErrPermission),
		"allow the agent to write or connect there: check owner, mode, mount options, " +
			"attributes (lsattr), and SELinux, AppArmor or the systemd unit; or use --config and --ssl-dir " +
			"to name directories that its user can write to"},
}

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

func as[T error](err error) bool {
	var target T
	return errors.As(err, &target)
}

func text(part string) func(error) bool {
	return func(err error) bool { return strings.Contains(strings.ToLower(err.Error()), part) }
}

// isRefusal reports whether a broker refused or ended the connection.
func isRefusal(err error) bool {
	return is(nats.ErrAuthorization, nats.ErrAuthExpired)(err) || text("authorization violation")(err)
}

func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// RefusedByBroker reports whether at least one authenticated broker refused this node's certificate. Alerts during the
// handshake do not count: anything on the network could send one to make the node present its token.
func RefusedByBroker(err error) bool {
	if several, ok := errors.AsType[*severalError](err); ok {
		return slices.ContainsFunc(several.each, RefusedByBroker)
	}
	return !is(nats.ErrTLS, ErrUnanswered)(err) && (isRefusal(err) || isAlert(err))
}

// Join joins errors in one line. It sorts them, since brokers are tried in random order.
func Join(failures []error) error {
	if len(failures) == 0 {
		return nil
	}
	slices.SortFunc(failures, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return &severalError{OneLine(errors.Join(failures...)), failures}
}

type severalError struct {
	error
	each []error
}

func (e *severalError) Unwrap() error { return e.error }

// OneLine returns err with its text in one line.
func OneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	return &lineError{err}
}

type lineError struct{ err error }

func (e *lineError) Error() string { return strings.ReplaceAll(e.err.Error(), "\n", "; ") }
func (e *lineError) Unwrap() error { return e.err }
