package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
)

// A Problem is an error as an answer: a problem document (RFC 9457).
type Problem struct {
	Title  string    `json:"title"`            // what went wrong, in one line
	Status int       `json:"status"`           // HTTP status
	Code   wire.Code `json:"code,omitempty"`   // where the table of codes has one
	Remedy string    `json:"remedy,omitempty"` // what to do about it
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Remedy != "" {
		return p.Title + "; " + p.Remedy
	}
	return p.Title
}

// problemOf returns the answer for an error of the provisioner's.
func problemOf(err error) *Problem {
	var p *Problem
	var r *provisioner.Refusal
	switch {
	case errors.As(err, &p):
		return p
	case isAny(err, provisioner.ErrLoginLimited):
		return &Problem{Title: provisioner.ErrLoginLimited.Error(), Status: http.StatusTooManyRequests, Remedy: "try again in a second"}
	case isAny(err, provisioner.ErrLogin): // the rest of it is for the log
		return &Problem{Title: provisioner.ErrLogin.Error(), Status: http.StatusUnauthorized, Remedy: "show a certificate or a token of an operator; the provisioner's log says what is wrong with this one"}
	case isAny(err, provisioner.ErrClock):
		return &Problem{Title: err.Error(), Status: http.StatusServiceUnavailable, Code: wire.CodeClockBehind, Remedy: wire.MeaningOf(wire.CodeClockBehind).Remedy}
	case isAny(err, provisioner.ErrNoRecord, provisioner.ErrUnknownToken, provisioner.ErrNoOperator, provisioner.ErrNotWaiting, provisioner.ErrNotAllowed, provisioner.ErrUnknownWebhook, errNoCRL):
		return &Problem{Title: err.Error(), Status: http.StatusNotFound}
	case isAny(err, provisioner.ErrState, provisioner.ErrNoClaim, provisioner.ErrClaimYoung, provisioner.ErrClaimEnrolled):
		return &Problem{Title: err.Error(), Status: http.StatusConflict}
	case isAny(err, policies.ErrInvalid):
		return &Problem{Title: err.Error(), Status: http.StatusUnprocessableEntity}
	case isAny(err, fleet.ErrReading):
		return &Problem{Title: err.Error(), Status: http.StatusServiceUnavailable, Remedy: "ask again in a few seconds"}
	case isAny(err, provisioner.ErrNodeAway):
		return &Problem{Title: err.Error(), Status: http.StatusConflict}
	case isAny(err, provisioner.ErrNodeSilent):
		return &Problem{Title: err.Error(), Status: http.StatusGatewayTimeout, Remedy: "ask again: what the node has taken already it does not do twice"}
	case isAny(err, provisioner.ErrNoCommandKey):
		return &Problem{Title: err.Error(), Status: http.StatusConflict, Remedy: "name the node's token with --token"}
	case isAny(err, provisioner.ErrTokenID, provisioner.ErrOperator, provisioner.ErrEverything, provisioner.ErrNotOneTime, wire.ErrPattern, ca.ErrRequest, jwt.ErrKey, fleet.ErrCursor):
		return badRequest(err)
	case isAny(err, provisioner.ErrStoreFull):
		return &Problem{Title: err.Error(), Status: http.StatusInsufficientStorage, Code: wire.CodeStorageLow, Remedy: wire.MeaningOf(wire.CodeStorageLow).Remedy}
	case isAny(err, provisioner.ErrPending, provisioner.ErrRevocationsUnknown):
		return &Problem{Title: err.Error(), Status: http.StatusServiceUnavailable, Code: wire.CodeStoreUnavailable, Remedy: wire.MeaningOf(wire.CodeStoreUnavailable).Remedy}
	case errors.As(err, &r):
		return &Problem{Title: err.Error(), Status: http.StatusServiceUnavailable, Code: r.Code, Remedy: wire.MeaningOf(r.Code).Remedy}
	default:
		return &Problem{Title: err.Error(), Status: http.StatusInternalServerError}
	}
}

// isAny reports whether err is one of those.
func isAny(err error, those ...error) bool {
	return slices.ContainsFunc(those, func(target error) bool { return errors.Is(err, target) })
}

// badRequest says what is wrong with a request.
func badRequest(err error) *Problem {
	return &Problem{Title: err.Error(), Status: http.StatusBadRequest}
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client has gone
}
