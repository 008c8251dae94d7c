package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
)

// A Problem is an error as an answer: a problem document (RFC 9457). It has no
// instance: what went wrong is in the log, by who asked for what.
type Problem struct {
	// Type and Title say which kind of problem it is, the same each time: that of
	// the code, or else about:blank and what the status means (RFC 9457 section 4.2.1).
	// The server fills them in.
	Type  string `json:"type"`
	Title string `json:"title"`

	Status int       `json:"status"`           // HTTP status
	Detail string    `json:"detail"`           // what went wrong, in one line; of a policy each mistake in one
	Code   wire.Code `json:"code,omitempty"`   // where the table of codes has one
	Remedy string    `json:"remedy,omitempty"` // what to do about it

	// LeftAlone is that a condition of the order does not hold: what it is about is not any
	// more what it was chosen for, and to repeat the order is of no use. See [Change].
	LeftAlone bool `json:"left_alone,omitempty"`
}

// Types of problems.
const (
	problemType  = "urn:muster:problem:" // and the code
	problemBlank = "about:blank"
)

// Error implements error.
func (p *Problem) Error() string {
	if p.Remedy != "" {
		return p.Detail + "; " + p.Remedy
	}
	return p.Detail
}

// problemOf returns the answer for an error of the provisioner's.
func problemOf(err error) *Problem {
	var p *Problem
	var r *provisioner.Refusal
	var untimely *provisioner.UntimelyError
	var order *provisioner.OrderError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &order):
		return badRequest(err)
	case isAny(err, provisioner.ErrLoginLimited):
		return &Problem{Detail: provisioner.ErrLoginLimited.Error(), Status: http.StatusTooManyRequests, Remedy: "try again in a second"}
	case errors.As(err, &untimely):
		return &Problem{Detail: untimely.Error(), Status: http.StatusUnauthorized, Remedy: "show another one, or set the clock that is wrong: the provisioner's, or that of whoever made it"}
	case isAny(err, provisioner.ErrLogin): // the rest of it is for the log
		return &Problem{Detail: provisioner.ErrLogin.Error(), Status: http.StatusUnauthorized, Remedy: "show a certificate or a token of an operator; the provisioner's log says what is wrong with this one"}
	case isAny(err, provisioner.ErrClock):
		return coded(err, wire.CodeClockBehind)
	case isAny(err, provisioner.ErrNoRecord, provisioner.ErrUnknownToken, provisioner.ErrNoOperator, provisioner.ErrNotWaiting, provisioner.ErrNotAllowed, provisioner.ErrUnknownWebhook,
		errNoCRL, errNoInputs, errNoBackup):
		return &Problem{Detail: err.Error(), Status: http.StatusNotFound}
	case isAny(err, provisioner.ErrState, provisioner.ErrNotPaused, provisioner.ErrNoClaim, provisioner.ErrClaimYoung, provisioner.ErrClaimEnrolled, fleet.ErrHeard):
		return &Problem{Detail: err.Error(), Status: http.StatusConflict, LeftAlone: isAny(err, provisioner.ErrChanged, fleet.ErrHeard)}
	case isAny(err, policies.ErrInvalid):
		return &Problem{Detail: err.Error(), Status: http.StatusUnprocessableEntity}
	case isAny(err, fleet.ErrReading):
		return &Problem{Detail: err.Error(), Status: http.StatusServiceUnavailable, Remedy: "ask again in a few seconds; a provisioner that starts amid a storm serves the nodes first, for half a minute"}
	case isAny(err, provisioner.ErrNodeAway):
		return &Problem{Detail: err.Error(), Status: http.StatusServiceUnavailable, Remedy: "ask again in a few seconds if it is on its way back"}
	case isAny(err, provisioner.ErrNodeSilent):
		return &Problem{Detail: err.Error(), Status: http.StatusGatewayTimeout, Remedy: "ask again: what the node has taken already it does not do twice"}
	case isAny(err, provisioner.ErrNoCommandKey):
		return &Problem{Detail: err.Error(), Status: http.StatusConflict, Remedy: "name the node's token with --node-token"}
	case isAny(err, ca.ErrExpired):
		return coded(err, wire.CodeAuthorityExpired)
	case isAny(err, ca.ErrAuthority):
		return coded(err, wire.CodeCertificateFailed)
	case isAny(err, provisioner.ErrTokenID, provisioner.ErrOperator, provisioner.ErrEverything, provisioner.ErrPauses, provisioner.ErrNotOneTime, wire.ErrPattern, ca.ErrRequest, jwt.ErrKey, fleet.ErrCursor, fleet.ErrFact):
		return badRequest(err)
	case isAny(err, provisioner.ErrStoreFull):
		return &Problem{Detail: err.Error(), Status: http.StatusInsufficientStorage, Code: wire.CodeStorageLow, Remedy: wire.MeaningOf(wire.CodeStorageLow).Remedy}
	case isAny(err, provisioner.ErrPending, provisioner.ErrRevocationsUnknown):
		return coded(err, wire.CodeStoreUnavailable)
	case errors.As(err, &r):
		return coded(err, r.Code)
	default:
		return &Problem{Detail: err.Error(), Status: http.StatusInternalServerError}
	}
}

// coded says by a code of the table why the provisioner cannot do it now.
func coded(err error, code wire.Code) *Problem {
	return &Problem{Detail: err.Error(), Status: http.StatusServiceUnavailable, Code: code, Remedy: wire.MeaningOf(code).Remedy}
}

// isAny reports whether err is one of those.
func isAny(err error, those ...error) bool {
	return slices.ContainsFunc(those, func(target error) bool { return errors.Is(err, target) })
}

// maxDetail is how much is said of a bad request; chosen. What is quoted of it may be as
// large as it is itself.
const maxDetail = 2000

// badRequest says what is wrong with a request, all of it.
func badRequest(err error) *Problem {
	detail := err.Error()
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	return &Problem{Detail: detail, Status: http.StatusBadRequest}
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	sent := *p // errors are shared
	if p.Status != http.StatusUnprocessableEntity {
		sent.Detail = strings.ReplaceAll(p.Detail, "\n", "; ") // errors that were joined have a line each
	}
	sent.Type, sent.Title = problemBlank, http.StatusText(p.Status)
	if p.Code != "" {
		sent.Type, sent.Title = problemType+string(p.Code), wire.MeaningOf(p.Code).Public
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(&sent) // the client has gone
}
